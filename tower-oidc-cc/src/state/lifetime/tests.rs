use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use tokio::time::Instant;

use super::{LONGEST, Lifetime, MIN_DELAY};
use crate::clock::Timestamp;

fn moment() -> Timestamp {
    Timestamp {
        steady: Instant::now(),
        wall: SystemTime::UNIX_EPOCH + 20_000 * DAY,
    }
}

/// `moment` as the clocks show it a while later.
fn later(moment: Timestamp, by: Duration) -> Timestamp {
    moment.checked_add(by).unwrap()
}

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn day_token_is_renewed_at_four_fifths_minus_jitter() {
    let sent = moment();
    let latest = Lifetime::plan_at(sent, sent, DAY, None, 0.0).unwrap();
    assert_eq!(latest.renew_at.left_at(sent), DAY.mul_f64(0.8));
    assert_eq!(latest.expires_at.left_at(sent), DAY);
    let earlier = Lifetime::plan_at(sent, sent, DAY, None, 0.999).unwrap();
    assert!(earlier.renew_at.steady < latest.renew_at.steady);
    assert!(earlier.renew_at.left_at(sent) > DAY.mul_f64(0.7));
}

#[test]
fn renewal_that_was_set_varies_by_a_tenth_and_is_half_of_a_shorter_life() {
    let sent = moment();
    let hours = |n: u32| Duration::from_secs(3_600) * n;
    let age = |before, life, draw| {
        let plan = Lifetime::plan_at(sent, sent, life, Some(before), draw);
        plan.unwrap().renew_at.left_at(sent)
    };
    assert_eq!(age(hours(18), DAY, 0.0), hours(6));
    assert!(age(hours(18), DAY, 0.999) > hours(6).mul_f64(0.9));
    assert_eq!(age(hours(18), hours(18), 0.0), hours(9));
    assert_eq!(age(hours(18), hours(5), 0.0), hours(5) / 2);
    assert_eq!(age(Duration::ZERO, DAY, 0.5), DAY);
}

proptest! {
    #[test]
    fn renewal_lies_between_arrival_and_expiry(
        life_ms in 1u64..u64::MAX,
        late_ms in 0u64..30_000,
        draw in 0.0f64..1.0,
        before in prop::option::of(any::<u64>().prop_map(Duration::from_millis)),
    ) {
        let sent = moment();
        let now = later(sent, Duration::from_millis(late_ms));
        let life = Duration::from_millis(life_ms);
        match Lifetime::plan_at(now, sent, life, before, draw) {
            None => prop_assert!(late_ms >= life_ms),
            Some(plan) => {
                prop_assert!(late_ms < life_ms);
                let (renewed, left) = (plan.renew_at.left_at(now), plan.expires_at.left_at(now));
                prop_assert!(renewed <= left);
                prop_assert_eq!(plan.expires_at, later(sent, life.min(LONGEST)));
                // At most one renewal in half of the remaining life, or in `MIN_DELAY`: no loop.
                prop_assert!(renewed >= left.mul_f64(0.49).min(MIN_DELAY));
            }
        }
    }
}
