use std::{collections::VecDeque, num::NonZeroU32, time::Duration};

use proptest::prelude::*;
use tokio::time::Instant;

use super::{Account, Backoff, Budget, CAP, HINT_CAP, HOUR, Need, REFUSED};

fn account(per_hour: u32) -> Account {
    Account::new(Budget::per_hour(NonZeroU32::new(per_hour).unwrap()))
}

/// Spends at `now` if that is admitted.
fn spend(account: &mut Account, now: Instant, need: Need) -> bool {
    let admitted = account.wait_at(now, need).is_zero();
    if admitted {
        account.spend_at(now);
    }
    admitted
}

#[test]
fn half_comes_at_once_and_a_spent_budget_is_no_silence() {
    let start = Instant::now();
    let mut account = account(10);
    for _ in 0..5 {
        assert!(spend(&mut account, start, Need::Token));
    }
    assert!(!spend(&mut account, start, Need::Token));
    let wait = account.wait_at(start, Need::Token);
    assert!(wait <= HOUR / 6 + Duration::from_nanos(1), "{wait:?}");
    assert!(spend(&mut account, start + wait, Need::Token));
}

#[test]
fn a_renewal_leaves_one_request_for_when_there_is_no_token() {
    let start = Instant::now();
    let mut account = account(10);
    let renewals = (0..20).filter(|_| spend(&mut account, start, Need::Renewal));
    assert_eq!(renewals.count(), 4);
    assert!(spend(&mut account, start, Need::Token));
    // A budget too small to be divided serves both alike.
    for per_hour in [1, 2, 3] {
        let mut account = self::account(per_hour);
        assert!(spend(&mut account, start, Need::Renewal), "{per_hour}");
    }
}

proptest! {
    #[test]
    fn no_hour_holds_more_than_the_budget(
        per_hour in 1u32..40,
        steps in prop::collection::vec((0u64..1_200, any::<bool>()), 1..400),
    ) {
        let mut account = account(per_hour);
        let mut now = Instant::now();
        let mut hour = VecDeque::new();
        for (secs, renewal) in steps {
            now += Duration::from_secs(secs);
            let need = if renewal { Need::Renewal } else { Need::Token };
            if spend(&mut account, now, need) {
                hour.push_back(now);
            }
            // Closed at both ends, which is stricter than any way of counting.
            hour.retain(|at| now - *at <= HOUR);
            prop_assert!(hour.len() <= usize::try_from(per_hour).unwrap());
            prop_assert!(account.wait_at(now, need) <= HOUR + Duration::from_nanos(1));
        }
    }
}

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
