use std::time::Duration;

use super::{Backoff, CAP, HINT_CAP, REFUSED};

const ALMOST: f64 = 1.0 - f64::EPSILON;

#[test]
fn transient_failures_double_up_to_the_cap_with_full_jitter() {
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
fn a_success_starts_over() {
    let mut backoff = Backoff::default();
    backoff.fail(true, None, ALMOST);
    backoff.fail(true, None, ALMOST);
    backoff.succeed();
    assert!(backoff.fail(true, None, ALMOST) <= Duration::from_secs(1));
}

#[test]
fn a_refusal_is_remembered_longer_than_any_outage() {
    assert_eq!(Backoff::default().fail(false, None, 0.0), REFUSED);
    assert!(Backoff::default().fail(false, None, ALMOST) > CAP);
}

#[test]
fn the_servers_hint_is_a_floor_with_a_cap() {
    let hint = |secs| Some(Duration::from_secs(secs));
    assert_eq!(
        Backoff::default().fail(true, hint(7), 0.5),
        Duration::from_secs(7)
    );
    assert_eq!(Backoff::default().fail(true, hint(u64::MAX), 0.5), HINT_CAP);
    assert_eq!(Backoff::default().fail(false, hint(1), 0.0), REFUSED);
}
