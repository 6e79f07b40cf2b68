#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]

use std::time::Duration;

use proptest::{collection::vec, prelude::*};
use tokio::time::Instant;

use super::Refusals;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_refusal_silences_for_a_second_and_lowers_by_one_for_ten_minutes() {
    let mut refusals = Refusals::default();
    let start = Instant::now();
    assert_eq!(refusals.most(start, 60), 60);
    assert!(refusals.refused_at(start, 60, 60));
    assert_eq!(refusals.most(start, 60), 59);
    let second = start + Duration::from_secs(1);
    assert_eq!(refusals.silent_until(start), Some(second));
    assert_eq!(refusals.silent_until(second), None);
    let restored = start + 10 * MINUTE;
    assert_eq!(refusals.lowered_until(second), Some(restored));
    assert_eq!(refusals.most(restored, 60), 60);
    assert_eq!(refusals.lowered_until(restored), None);
}

#[test]
fn answers_to_what_was_sent_before_the_silence_are_one_refusal() {
    let mut refusals = Refusals::default();
    let start = Instant::now();
    assert!(refusals.refused_at(start, 60, 60));
    assert!(!refusals.refused_at(start + Duration::from_millis(999), 60, 60));
    assert_eq!(refusals.most(start, 60), 59);
    assert!(refusals.refused_at(start + Duration::from_secs(1), 59, 60));
    assert_eq!(refusals.most(start + Duration::from_secs(1), 60), 58);
}

#[test]
fn fewer_were_open_than_allowed_so_fewer_than_those_are_allowed() {
    let mut refusals = Refusals::default();
    let start = Instant::now();
    refusals.refused_at(start, 20, 60);
    assert_eq!(refusals.most(start, 60), 19);
    // One is always worth a try.
    let mut alone = Refusals::default();
    alone.refused_at(start, 1, 60);
    assert_eq!(alone.most(start, 60), 1);
}

#[test]
fn a_limit_that_was_restored_too_early_stays_low_for_twice_as_long() {
    let mut refusals = Refusals::default();
    let mut now = Instant::now();
    for minutes in [10, 20, 40, 80, 80] {
        refusals.refused_at(now, 60, 60);
        let until = refusals.lowered_until(now).expect("it is lowered");
        assert_eq!(until - now, minutes * MINUTE);
        now = until;
    }
    // A whole period without any: as at first.
    now += 80 * MINUTE;
    refusals.refused_at(now, 60, 60);
    let until = refusals.lowered_until(now).expect("it is lowered");
    assert_eq!(until - now, 10 * MINUTE);
}

proptest! {
    #[test]
    fn whatever_is_refused_the_limit_is_never_zero_never_raised_and_restored_in_the_end(
        most in 1_u32..100,
        steps in vec((0_u64..2_000_000, 0_u32..120), 1..50),
    ) {
        let mut refusals = Refusals::default();
        let mut now = Instant::now();
        for (pause, open) in steps {
            now += Duration::from_millis(pause);
            let before = refusals.most(now, most);
            let news = refusals.refused_at(now, open, most);
            let after = refusals.most(now, most);
            prop_assert!((1..=before).contains(&after));
            prop_assert!(!news || after <= open.saturating_sub(1).max(1));
            prop_assert!(news || after == before);
            prop_assert!(refusals.silent_until(now).is_some());
        }
        prop_assert_eq!(refusals.most(now + 80 * MINUTE, most), most);
    }
}
