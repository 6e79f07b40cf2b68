//! The rule alone. `tests/layer/rejection.rs` has it under services, call rates and faults.

use std::time::Duration;

use super::{Backoff, CAP, HINT_CAP, REFUSED, Refreshes, Roles};
use crate::state::tests::{secs, start};

/// Refuses once a second, with refreshes that succeed, and returns the seconds of the refreshes.
fn refreshes(seconds: u64) -> Vec<u64> {
    let (start, mut rule) = (start(), Refreshes::default());
    let refused = |second: &u64| {
        let now = start.checked_add(secs(*second)).unwrap();
        let begins = rule.allow_at(now, 1, false);
        if begins {
            rule.note_at(now);
        }
        begins
    };
    (0..seconds).filter(refused).collect()
}

#[test]
fn constant_refusals_spread_refreshes_over_the_hour() {
    let long = refreshes(12 * 3_600);
    assert_eq!(long.get(..5), Some(&[0, 2, 4, 6, 283][..]));
    for (at, second) in long.iter().enumerate() {
        let in_hour = long.iter().skip(at).take_while(|it| **it < second + 3_600);
        assert!(in_hour.count() <= 16, "{second}");
        let next = long.get(at + 1).copied().unwrap_or(12 * 3_600);
        assert!(next - second <= 301, "{second} to {next}");
    }
}

/// A token accepted after two refusals shows a route that refuses every token.
#[test]
fn tolerated_refusals_take_no_refresh_after_the_free_ones_and_a_longer_row_does() {
    let (start, mut rule) = (start(), Refreshes::default());
    for turn in 0..4 {
        let now = start.checked_add(secs(2 * turn)).unwrap();
        assert!(rule.allow_at(now, 1, false));
        rule.note_at(now);
        assert!(!rule.allow_at(now, 1, false), "not in the same instant");
    }
    rule.tolerate(2);
    let later = start.checked_add(secs(310)).unwrap();
    assert!(!rule.allow_at(later, 2, false));
    assert!(rule.allow_at(later, 3, false));
    rule.tolerate(1_000);
    assert!(!rule.allow_at(later, 16, false));
    assert!(rule.allow_at(later, 17, false));
    // After an hour without a refresh, nothing is known of such routes.
    let later = start.checked_add(secs(3_607)).unwrap();
    assert!(rule.allow_at(later, 1, false));
    rule.note_at(later);
}

#[test]
fn the_age_at_which_a_missing_role_replaces_a_token_doubles_up_to_an_hour() {
    let mut roles = Roles::default();
    let mut waits = Vec::new();
    for generation in 1..8 {
        let wait = roles.missing(generation);
        assert_eq!(roles.missing(generation), wait, "once for each token");
        waits.push(wait.as_secs() / 60);
    }
    assert_eq!(waits, [5, 10, 20, 40, 60, 60, 60]);
    assert_eq!(
        roles.missing(10),
        secs(300),
        "the one before it had the role"
    );
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
