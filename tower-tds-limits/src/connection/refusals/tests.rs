use std::time::Duration;

use proptest::{collection::vec, prelude::*};
use tokio::time::Instant;

use super::Refusals;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_refusal_silences_for_a_second_and_lowers_the_limit_for_ten_minutes() {
    let mut refusals = Refusals::default();
    let start = Instant::now();
    refusals.refused(start, 60);
    let again = start + SECOND;
    assert_eq!(refusals.silent_until(start), Some(again));
    assert_eq!(refusals.silent_until(again), None);
    assert_eq!(refusals.most(again, 60), 50);
    let restored = start + 10 * MINUTE;
    assert_eq!(refusals.lowered_until(again), Some(restored));
    assert_eq!(refusals.most(restored, 60), 60);
    assert_eq!(refusals.lowered_until(restored), None);
}

#[test]
fn answers_to_what_was_sent_before_the_silence_are_one_refusal() {
    let mut refusals = Refusals::default();
    let start = Instant::now();
    refusals.refused(start, 60);
    let during = start + Duration::from_millis(999);
    refusals.refused(during, 60);
    assert_eq!(refusals.most(during, 60), 50);
}

#[test]
fn each_refusal_takes_a_sixth() {
    let mut refusals = Refusals::default();
    let mut now = Instant::now();
    for most in [50, 41, 34, 28] {
        refusals.refused(now, 60);
        assert_eq!(refusals.most(now, 60), most);
        now += SECOND;
    }
    // One is always worth a try.
    let mut alone = Refusals::default();
    for seconds in 0..3 {
        alone.refused(now + seconds * SECOND, 1);
    }
    assert_eq!(alone.most(now + 2 * SECOND, 1), 1);
}

#[test]
fn while_the_limit_is_lowered_one_connection_is_tried_at_a_time() {
    let mut refusals = Refusals::default();
    let start = Instant::now();
    refusals.connects(start);
    assert_eq!(refusals.next_connect(start), None);
    refusals.refused(start, 60);
    let now = start + SECOND;
    refusals.connects(now);
    let next = now + SECOND / 10;
    assert_eq!(refusals.next_connect(now), Some(next));
    assert_eq!(refusals.next_connect(next), None);
    assert_eq!(refusals.next_connect(now + 10 * MINUTE), None);
}

proptest! {
    #[test]
    fn whatever_is_refused_the_limit_is_never_zero_never_raised_and_restored_in_the_end(
        most in 1_u32..100,
        pauses in vec(0_u64..2_000_000, 1..50),
    ) {
        let mut refusals = Refusals::default();
        let mut now = Instant::now();
        for pause in pauses {
            now += Duration::from_millis(pause);
            let before = refusals.most(now, most);
            refusals.refused(now, most);
            let after = refusals.most(now, most);
            prop_assert!((1..=before).contains(&after));
            prop_assert!(refusals.silent_until(now).is_some());
        }
        prop_assert_eq!(refusals.most(now + 10 * MINUTE, most), most);
    }
}
