#![expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]

use std::time::Duration;

use fastrand::Rng;
use proptest::prelude::*;

use super::{Again, Cured, Failed, Idempotent, Reuse, Spare, Way, verdict};
use crate::retry::SILENCE;
use crate::retry::backoff::QUOTA;
use crate::retry::policy::Policy;
use crate::{Kind, Sent, Stop};

fn failed(kind: Kind) -> Failed {
    Failed {
        kind,
        advice: kind.advice(),
        sent: kind.sent(),
        hint: None,
        waited: Duration::ZERO,
        attempt: 1,
        cured: Cured::No,
        reuse: Reuse::Spent,
        idempotent: Idempotent::Yes,
        spare: Spare::Kept,
        left: None,
    }
}

fn decide(failed: &Failed) -> Result<Duration, Stop> {
    decide_by(failed, 7)
}

fn decide_by(failed: &Failed, seed: u64) -> Result<Duration, Stop> {
    let again = verdict(failed, &Policy::default(), &mut Rng::with_seed(seed));
    again.map(|again| again.wait)
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(Kind::ALL)
}

#[test]
fn exactly_the_retryable_kinds_are_retried() {
    for kind in Kind::ALL {
        assert_eq!(
            decide(&failed(*kind)).is_ok(),
            kind.is_retryable(),
            "{kind}"
        );
    }
}

#[test]
fn a_refused_token_is_retried_once_and_at_once() {
    let first = failed(Kind::InvalidToken);
    assert_eq!(decide(&first), Ok(Duration::ZERO));
    let again = Failed {
        cured: Cured::Yes,
        attempt: 2,
        ..first
    };
    assert_eq!(decide(&again), Err(Stop::Fatal));
}

#[test]
fn a_method_that_may_not_run_twice_is_retried_only_if_never_sent() {
    for kind in Kind::ALL.iter().filter(|kind| kind.is_retryable()) {
        let post = Failed {
            idempotent: Idempotent::No,
            ..failed(*kind)
        };
        let unsent = kind.sent() == Sent::Never;
        assert_eq!(decide(&post).is_ok(), unsent, "{kind}");
    }
}

#[test]
fn each_stop_has_its_reason() {
    let base = failed(Kind::Unavailable);
    let second = Some(Duration::from_secs(1));
    for (failed, stop) in [
        (Failed { attempt: 3, ..base }, Stop::Attempts),
        (
            Failed {
                attempt: u32::MAX,
                spare: Spare::None,
                ..base
            },
            Stop::Attempts,
        ),
        (
            Failed {
                spare: Spare::None,
                ..base
            },
            Stop::NotReplayable,
        ),
        (
            Failed {
                hint: Some(Duration::MAX),
                ..base
            },
            Stop::HintTooLong,
        ),
        (
            Failed {
                hint: Some(Duration::from_secs(31)),
                left: second,
                ..base
            },
            Stop::HintTooLong,
        ),
        (
            Failed {
                hint: Some(Duration::from_secs(2)),
                left: second,
                ..base
            },
            Stop::Deadline,
        ),
        (
            Failed {
                left: Some(Duration::ZERO),
                ..base
            },
            Stop::Deadline,
        ),
        // A wait of nothing, and nothing left.
        (
            Failed {
                left: Some(Duration::ZERO),
                ..failed(Kind::InvalidToken)
            },
            Stop::Deadline,
        ),
    ] {
        assert_eq!(decide(&failed), Err(stop), "{failed:?}");
    }
}

#[test]
fn a_connection_that_may_have_been_idle_is_met_once_for_free() {
    let policy = Policy::default();
    for kind in Kind::ALL {
        let closed = matches!(kind, Kind::Incomplete | Kind::Reset);
        let last = Failed {
            reuse: Reuse::Open,
            attempt: policy.attempts.get(),
            ..failed(*kind)
        };
        let again = verdict(&last, &policy, &mut Rng::with_seed(7));
        let free = Again {
            wait: Duration::ZERO,
            way: Way::Reused,
        };
        assert_eq!(again == Ok(free), closed, "{kind}");
        let spent = Failed {
            reuse: Reuse::Spent,
            ..last
        };
        assert!(verdict(&spent, &policy, &mut Rng::with_seed(7)).is_err());
    }
}

#[test]
fn what_never_left_and_what_is_cured_costs_nothing() {
    for kind in Kind::ALL.iter().filter(|kind| kind.is_retryable()) {
        let again = verdict(&failed(*kind), &Policy::default(), &mut Rng::with_seed(7));
        let way = match (kind.sent(), kind) {
            (_, Kind::InvalidToken) => Way::Cured,
            // The server that refuses a stream has had work with it, and too much of it.
            (_, Kind::StreamRefused) => Way::Paid,
            (Sent::Never, _) => Way::Unsent,
            _ => Way::Paid,
        };
        assert_eq!(again.map(|again| again.way), Ok(way), "{kind}");
    }
}

#[test]
fn the_longest_wait_itself_is_slept() {
    let hint = Some(Policy::default().longest_wait);
    assert!(
        decide(&Failed {
            hint,
            ..failed(Kind::Throttled)
        })
        .is_ok()
    );
}

#[test]
fn waits_are_drawn_up_to_their_bounds_and_after_a_hint_up_to_half_of_it_more() {
    let ms = Duration::from_millis;
    let hint = Some(ms(1_000));
    for (kind, hint, attempt, least, most) in [
        (Kind::Unavailable, None, 1, ms(0), ms(100)),
        (Kind::Unavailable, None, 2, ms(0), ms(200)),
        (Kind::Unavailable, hint, 1, ms(1_000), ms(1_500)),
        (Kind::RateExceeded, None, 1, ms(1_000), ms(1_500)),
        // The long backoff begins at two seconds.
        (Kind::Throttled, None, 1, ms(1_000), ms(2_500)),
        (Kind::Throttled, None, 2, ms(1_000), ms(4_500)),
    ] {
        let failed = Failed {
            hint,
            attempt,
            ..failed(kind)
        };
        let waits = (0..2_000).map(|seed| decide_by(&failed, seed).unwrap());
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
        let failed = Failed { hint: Some(hint), attempt, ..failed(kind) };
        if let Ok(wait) = decide_by(&failed, seed) {
            let own = Policy::default().backoff.bound(attempt).max(QUOTA.bound(attempt));
            prop_assert!(wait >= hint);
            prop_assert!(wait <= (hint + hint / 2).max(own + hint / 2).max(SILENCE * 2));
        }
    }

    #[test]
    fn a_second_of_silence_follows_a_423_and_a_429_without_a_hint(attempt in 1u32..3, seed: u64) {
        for kind in [Kind::RateExceeded, Kind::Throttled] {
            let failed = Failed { attempt, ..failed(kind) };
            let wait = decide_by(&failed, seed);
            prop_assert!(wait.is_ok_and(|wait| wait >= SILENCE));
        }
    }

    #[test]
    fn a_wait_always_fits_into_the_deadline(kind in kinds(), left in 0u64..5_000, seed: u64) {
        let left = Duration::from_millis(left);
        let failed = Failed { left: Some(left), ..failed(kind) };
        if let Ok(wait) = decide_by(&failed, seed) {
            prop_assert!(wait < left);
        }
    }

    #[test]
    fn a_hint_makes_nothing_retryable(kind in kinds(), hint in 0u64..30_000) {
        let failed = Failed { hint: Some(Duration::from_millis(hint)), ..failed(kind) };
        prop_assert_eq!(decide(&failed).is_ok(), kind.is_retryable());
    }
}
