use std::time::Duration;

use http::Method;
use proptest::prelude::*;
use tower_tds_outcome::Resend;

use super::{Policy, RetryState, up_to};
use crate::kind::{Advice, SILENCE};
use crate::{Error, GiveUp, Kind, RetryBudget, Sent};

/// The state of a PUT after `attempts` attempts.
fn put(seed: u64, attempts: u32) -> RetryState {
    fastrand::seed(seed);
    let mut state = RetryState::new(&Method::PUT, None);
    (state.attempts, state.counted) = (attempts, attempts);
    state
}

fn failed(kind: Kind) -> Error {
    Error::new(kind, "no")
}

fn hinted(kind: Kind, hint: Duration) -> Error {
    let mut error = failed(kind);
    error.facts_mut().cause.wait = Some(hint);
    error
}

fn after(
    state: &mut RetryState,
    error: &Error,
    left: Option<Duration>,
) -> Result<Duration, GiveUp> {
    state.begin_retry(error, &free(), true, left)
}

/// The default, whose retries cost nothing.
fn free() -> Policy {
    Policy {
        budget: None,
        ..Policy::default()
    }
}

fn wait(state: &mut RetryState, error: &Error) -> Result<Duration, GiveUp> {
    after(state, error, None)
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(Kind::ALL)
}

#[test]
fn retry_of_an_unsent_request_costs_no_budget() {
    let policy = Policy {
        budget: Some(RetryBudget::new(0.0, 0)),
        ..Policy::default()
    };
    let pays = |error: &Error| {
        let decided = put(7, 1).begin_retry(error, &policy, true, None);
        decided == Err(GiveUp::Budget)
    };
    for kind in Kind::ALL
        .iter()
        .filter(|kind| kind.row().advice != Advice::Never)
    {
        let mut error = failed(*kind);
        assert_eq!(pays(&error), kind.sent() != Sent::Never, "{kind}");
        error.facts_mut().cause.resend = Some(Resend::Free);
        assert!(!pays(&error), "{kind}");
    }
}

#[test]
fn short_longest_wait_does_not_shorten_the_silence() {
    for longest in [Duration::from_millis(10), Duration::from_millis(500)] {
        let policy = Policy {
            longest_wait: longest,
            ..free()
        };
        let asked = |error: &Error, seed| put(seed, 2).begin_retry(error, &policy, true, None);
        for seed in 0..500 {
            for kind in [Kind::Unavailable, Kind::Connect] {
                let slept = asked(&failed(kind), seed).unwrap();
                assert!(slept <= longest, "{kind} {slept:?}");
                let hint = hinted(kind, SILENCE);
                assert_eq!(asked(&hint, seed), Err(GiveUp::HintTooLong), "{kind}");
            }
            for kind in [Kind::RateExceeded, Kind::Throttled] {
                assert_eq!(asked(&failed(kind), seed), Ok(SILENCE), "{kind}");
            }
        }
    }
}

#[test]
fn waits_fill_their_range_with_and_without_a_hint() {
    let ms = Duration::from_millis;
    let hint = Some(ms(1_000));
    for (kind, hint, attempt, least, most) in [
        (Kind::Unavailable, None, 1, ms(0), ms(100)),
        (Kind::Unavailable, None, 2, ms(0), ms(200)),
        (Kind::Unavailable, hint, 1, ms(1_000), ms(1_500)),
        (Kind::RateExceeded, None, 1, ms(1_000), ms(1_500)),
        (Kind::Throttled, None, 1, ms(1_000), ms(1_500)),
        (Kind::Throttled, None, 2, ms(1_000), ms(1_500)),
    ] {
        let error = hint.map_or_else(|| failed(kind), |hint| hinted(kind, hint));
        let waits = (0..2_000).map(|seed| wait(&mut put(seed, attempt), &error).unwrap());
        let (mut low, mut high) = (Duration::MAX, Duration::ZERO);
        for wait in waits {
            (low, high) = (low.min(wait), high.max(wait));
        }
        let slack = (most - least) / 10;
        assert!((least..=least + slack).contains(&low), "{kind} {low:?}");
        assert!((most - slack..=most).contains(&high), "{kind} {high:?}");
    }
}

proptest! {
    #[test]
    fn a_hint_is_a_floor_and_jitter_only_adds(
        kind in kinds(), hint in 0u64..=30_000, attempt in 1u32..3, seed: u64,
    ) {
        let hint = Duration::from_millis(hint);
        if let Ok(wait) = wait(&mut put(seed, attempt), &hinted(kind, hint)) {
            let own = free().backoff(attempt);
            prop_assert!(wait >= hint && wait <= free().longest_wait);
            prop_assert!(wait <= (hint + hint / 2).max(own + hint / 2).max(SILENCE * 2));
        }
    }

    #[test]
    fn hint_before_the_deadline_is_kept_with_time_to_retry(
        kind in kinds(), hint in 0u64..5_000, more in 1u64..5_000, seed: u64,
    ) {
        prop_assume!(kind.row().advice != Advice::Never);
        let (hint, left) = (Duration::from_millis(hint), Duration::from_millis(hint + more));
        let again = after(&mut put(seed, 1), &hinted(kind, hint), Some(left));
        let floor = if kind == Kind::RateExceeded { hint.max(SILENCE) } else { hint };
        if floor < left {
            let wait = again.unwrap();
            prop_assert!(wait >= floor && wait - floor <= (left - floor) / 2);
        } else {
            prop_assert_eq!(again, Err(GiveUp::Deadline));
        }
    }
}

proptest! {
    #[test]
    fn no_draw_exceeds_its_bound(base in 0u64.., cap in 0u64.., n: u32) {
        let (base, cap) = (Duration::from_nanos(base), Duration::from_nanos(cap));
        let policy = Policy { backoff: (base, cap), ..free() };
        let bound = policy.backoff(n);
        prop_assert!(up_to(bound) <= bound && bound <= cap);
        prop_assert!(bound <= policy.backoff(n.saturating_add(1)));
    }
}
