//! The rule alone. `tests/layer/rejection.rs` has it under services, call rates and faults.

use std::time::Duration;

use super::{Backoff, CAP, HINT_CAP, REFUSED, Refusals};
use crate::state::tests::{secs, start};

/// Refuses once a second, with refreshes that succeed, and returns the seconds of the refreshes.
fn refreshes(seconds: u64) -> Vec<u64> {
    let (start, mut rule) = (start(), Refusals::default());
    let refused = |second: &u64| {
        let now = start.checked_add(secs(*second)).unwrap();
        let begins = rule.refused_at(now);
        if begins {
            rule.charge_at(now);
            rule.replaced();
        }
        begins
    };
    (0..seconds).filter(refused).collect()
}

#[test]
fn constant_refusals_spread_refreshes_over_the_hour() {
    let hour = refreshes(3_600);
    assert_eq!(hour.get(..4), Some(&[0, 20, 60, 140][..]));
    assert!(hour.len() <= 16, "{hour:?}");
    let long = refreshes(12 * 3_600);
    for (at, second) in long.iter().enumerate() {
        let in_hour = long.iter().skip(at).take_while(|it| **it < second + 3_600);
        assert!(in_hour.count() <= 16, "{second}");
    }
}

#[test]
fn emptier_bucket_requires_more_refusals_for_a_refresh() {
    let (start, mut rule) = (start(), Refusals::default());
    let mut needed = Vec::new();
    for turn in 0..4_u64 {
        // Far enough apart for the distance of the rule, but too near for a regained unit.
        let now = start.checked_add(secs(turn * 85)).unwrap();
        let mut count = 1;
        while !rule.refused_at(now) {
            count += 1;
        }
        needed.push(count);
        rule.charge_at(now);
        rule.replaced();
    }
    assert_eq!(needed, [1, 2, 4, 16]);
}

#[test]
fn acceptance_resets_the_refusal_count() {
    let (now, mut rule) = (start(), Refusals::default());
    assert!(rule.refused_at(now));
    rule.charge_at(now);
    rule.replaced();
    let later = now.checked_add(secs(30)).unwrap();
    for _ in 0..10 {
        assert!(!rule.refused_at(later));
        assert!(rule.is_doubted());
        assert!(rule.accepted_at(later).is_some());
        assert!(!rule.is_doubted());
    }
}

#[test]
fn a_failed_refresh_is_repeated_at_no_charge_until_an_acceptance() {
    let (start, mut rule) = (start(), Refusals::default());
    let at = |second| start.checked_add(secs(second)).unwrap();
    assert!(rule.refused_at(at(0)));
    rule.charge_at(at(0));
    for second in 1..100 {
        assert!(rule.refused_at(at(second)), "{second}");
        rule.charge_at(at(second));
    }
    assert_eq!(rule.left_at(at(100)), 3);
    rule.accepted_at(at(100));
    assert!(!rule.refused_at(at(101)));
}

const ALMOST: f64 = 1.0 - f64::EPSILON;

#[test]
fn backoff_doubles_up_to_the_cap_with_full_jitter() {
    let mut backoff = Backoff::default();
    for expected in [1, 2, 4, 8, 16, 30, 30] {
        let wait = backoff.fail(true, None, ALMOST);
        assert_eq!(wait.as_secs_f64().round(), f64::from(expected));
    }
    assert_eq!(backoff.fail(true, None, 0.0), Duration::ZERO);
    for _ in 0..1_000 {
        assert!(backoff.fail(true, None, ALMOST) <= CAP);
    }
}

#[test]
fn backoff_of_a_refusal_exceeds_the_cap_of_transient_failures() {
    assert_eq!(Backoff::default().fail(false, None, 0.0), REFUSED);
    assert!(Backoff::default().fail(false, None, ALMOST) > CAP);
}

#[test]
fn retry_after_hint_is_a_floor_with_a_cap() {
    let hint = |secs| Some(Duration::from_secs(secs));
    assert_eq!(
        Backoff::default().fail(true, hint(7), 0.5),
        Duration::from_secs(7)
    );
    assert_eq!(Backoff::default().fail(true, hint(u64::MAX), 0.5), HINT_CAP);
    assert_eq!(Backoff::default().fail(false, hint(1), 0.0), REFUSED);
}
