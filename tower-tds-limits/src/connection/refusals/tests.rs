#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]

use std::time::Duration;

use proptest::{collection::vec, prelude::*};
use tokio::time::Instant;

use super::{Evidence, Refusals};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_new_connection_that_is_refused_silences_for_a_second_and_a_second_one_lowers_the_limit() {
    let mut refusals = Refusals::default();
    let start = Instant::now();
    assert!(!refusals.any());
    assert!(refusals.refused(start, Evidence::Strong, 60, 60));
    assert!(refusals.any());
    let again = start + SECOND;
    assert_eq!(refusals.silent_until(start), Some(again));
    assert_eq!(refusals.silent_until(again), None);
    assert_eq!(refusals.most(again, 60), 60);

    assert!(refusals.refused(again, Evidence::Strong, 60, 60));
    assert_eq!(refusals.most(again, 60), 59);
    let restored = again + 10 * MINUTE;
    assert_eq!(refusals.lowered_until(again), Some(restored));
    assert_eq!(refusals.most(restored, 60), 60);
    assert_eq!(refusals.lowered_until(restored), None);
}

#[test]
fn answers_to_what_was_sent_before_the_silence_are_one_refusal() {
    let mut refusals = Refusals::default();
    let start = Instant::now();
    assert!(refusals.refused(start, Evidence::Strong, 60, 60));
    let during = start + Duration::from_millis(999);
    for evidence in [Evidence::Strong, Evidence::Weak] {
        assert!(!refusals.refused(during, evidence, 60, 60));
    }
    assert_eq!(refusals.most(during, 60), 60);
}

#[test]
fn a_new_connection_that_is_refused_much_later_is_the_first_again() {
    let mut refusals = Refusals::default();
    let start = Instant::now();
    refusals.refused(start, Evidence::Strong, 60, 60);
    let later = start + 2 * MINUTE;
    refusals.refused(later, Evidence::Strong, 60, 60);
    assert_eq!(refusals.most(later, 60), 60);
}

#[test]
fn one_refusal_takes_a_sixth_at_the_most() {
    let mut refusals = Refusals::default();
    let mut now = Instant::now();
    refusals.refused(now, Evidence::Strong, 5, 60);
    for most in [50, 41, 34, 28] {
        now += SECOND;
        refusals.refused(now, Evidence::Strong, 5, 60);
        assert_eq!(refusals.most(now, 60), most);
    }
    // One is always worth a try.
    let mut alone = Refusals::default();
    for seconds in 0..3 {
        alone.refused(now + seconds * SECOND, Evidence::Strong, 1, 1);
    }
    assert_eq!(alone.most(now + 2 * SECOND, 1), 1);
}

#[test]
fn refusals_on_connections_that_have_worked_count_when_they_come_together() {
    let now = Instant::now();
    let mut sparse = Refusals::default();
    for _ in 0..1_000 {
        assert!(sparse.refused(now, Evidence::Weak, 60, 60));
        assert_eq!((sparse.most(now, 60), sparse.silent_until(now)), (60, None));
        for _ in 0..99 {
            sparse.answered();
        }
    }
    let mut dense = Refusals::default();
    for _ in 0..3 {
        dense.refused(now, Evidence::Weak, 60, 60);
        dense.answered();
        assert_eq!((dense.most(now, 60), dense.silent_until(now)), (60, None));
    }
    dense.refused(now, Evidence::Weak, 60, 60);
    assert_eq!(dense.most(now, 60), 50);
    assert!(dense.silent_until(now).is_some());
}

#[test]
fn while_the_limit_is_in_doubt_one_connection_is_tried_at_a_time() {
    let mut refusals = Refusals::default();
    let start = Instant::now();
    refusals.connects(start);
    assert_eq!(refusals.next_connect(start, 7), None);
    refusals.refused(start, Evidence::Strong, 60, 60);
    let now = start + SECOND;
    refusals.connects(now);
    assert_eq!(refusals.next_connect(now, 1), Some(now + SECOND));
    // It was accepted, or takes its time.
    assert_eq!(refusals.next_connect(now, 0), None);
    assert_eq!(refusals.next_connect(now + SECOND, 1), None);
    assert_eq!(refusals.next_connect(now + 2 * MINUTE, 1), None);
}

#[test]
fn a_limit_that_was_restored_too_early_stays_low_for_twice_as_long() {
    let mut refusals = Refusals::default();
    let mut now = Instant::now();
    for minutes in [10, 20, 40, 80, 80] {
        refusals.refused(now, Evidence::Strong, 60, 60);
        now += SECOND;
        refusals.refused(now, Evidence::Strong, 60, 60);
        let until = refusals.lowered_until(now).expect("it is lowered");
        assert_eq!(until - now, minutes * MINUTE);
        now = until;
    }
    // A whole period without any: as at first.
    now += 80 * MINUTE;
    refusals.refused(now, Evidence::Strong, 60, 60);
    now += SECOND;
    refusals.refused(now, Evidence::Strong, 60, 60);
    let until = refusals.lowered_until(now).expect("it is lowered");
    assert_eq!(until - now, 10 * MINUTE);
}

proptest! {
    #[test]
    fn whatever_is_refused_the_limit_is_never_zero_never_raised_and_restored_in_the_end(
        most in 1_u32..100,
        steps in vec((0_u64..2_000_000, 0_u32..120, any::<bool>(), 0..5_usize), 1..50),
    ) {
        let mut refusals = Refusals::default();
        let mut now = Instant::now();
        for (pause, open, new, answers) in steps {
            now += Duration::from_millis(pause);
            (0..answers).for_each(|_| refusals.answered());
            let before = refusals.most(now, most);
            let evidence = if new { Evidence::Strong } else { Evidence::Weak };
            let news = refusals.refused(now, evidence, open, most);
            let after = refusals.most(now, most);
            prop_assert!((1..=before).contains(&after));
            prop_assert!(news || after == before);
            prop_assert!(!new || refusals.silent_until(now).is_some());
        }
        prop_assert_eq!(refusals.most(now + 80 * MINUTE, most), most);
    }
}
