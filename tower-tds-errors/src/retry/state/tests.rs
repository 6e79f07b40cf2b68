use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use proptest::prelude::*;

use super::{Again, Costs, Repeats, RetryState};
use crate::kind::{Advice, SILENCE};
use crate::retry::request::Repeat;
use crate::retry::settings::Settings;
use crate::{Error, GiveUp, Kind, Sent, classify};

/// The state of a PUT after `attempts` attempts. A PUT has no extra retry for an idle connection.
fn put(seed: u64, attempts: u32) -> RetryState {
    of(&Method::PUT, seed, attempts)
}

fn of(method: &Method, seed: u64, attempts: u32) -> RetryState {
    let repeats = Repeats::of(method, None);
    fastrand::seed(seed);
    let mut state = RetryState::of(repeats);
    (state.attempts, state.counted) = (attempts, attempts);
    state
}

fn failed(kind: Kind) -> Error {
    Error::new(kind, "no")
}

fn hinted(kind: Kind, hint: Duration) -> Error {
    failed(kind).with_retry_after(hint)
}

fn after(state: &mut RetryState, error: &Error, left: Option<Duration>) -> Result<Again, GiveUp> {
    state.after(error, &Settings::default(), true, left)
}

fn wait(state: &mut RetryState, error: &Error) -> Result<Duration, GiveUp> {
    after(state, error, None).map(|again| again.wait)
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(Kind::ALL)
}

#[test]
fn exactly_the_retryable_kinds_are_retried() {
    for kind in Kind::ALL {
        let again = wait(&mut put(7, 1), &failed(*kind));
        assert_eq!(again.is_ok(), kind.row().advice != Advice::Never, "{kind}");
    }
}

#[test]
fn a_refused_token_is_retried_once_and_at_once() {
    let (mut state, error) = (put(7, 1), failed(Kind::InvalidToken));
    let again = after(&mut state, &error, None).unwrap();
    assert_eq!(again.wait, Duration::ZERO);
    state.note(&error, again);
    assert_eq!(wait(&mut state, &error), Err(GiveUp::Fatal));
}

#[test]
fn a_method_that_may_not_run_twice_is_retried_only_if_never_sent() {
    for kind in Kind::ALL
        .iter()
        .filter(|kind| kind.row().advice != Advice::Never)
    {
        let again = wait(&mut of(&Method::POST, 7, 1), &failed(*kind));
        let unsent = kind.row().sent == Sent::Never;
        assert_eq!(again.is_ok(), unsent, "{kind}");
    }
}

#[test]
fn no_answer_lets_a_post_run_twice() {
    let hint = HeaderMap::from_iter([(http::header::RETRY_AFTER, "1".parse().unwrap())]);
    for status in [401, 408, 413, 421, 423, 425, 429, 500, 503] {
        let code = StatusCode::from_u16(status).unwrap();
        let error = classify(&HeaderMap::new(), code, &hint, "").unwrap_err();
        let decided = wait(&mut of(&Method::POST, 7, 1), &error);
        assert_eq!(decided, Err(GiveUp::NotIdempotent), "{status}");
        let allowed = Repeats::of(&Method::POST, Some(Repeat::Allowed));
        assert!(
            wait(&mut RetryState::of(allowed), &error).is_ok(),
            "{status}"
        );
    }
}

#[test]
fn a_request_may_say_that_it_is_sent_once_or_may_be_sent_twice() {
    let of = |method, said| RetryState::of(Repeats::of(method, Some(said)));
    let mut once = of(&Method::GET, Repeat::Never);
    for kind in Kind::ALL
        .iter()
        .filter(|kind| kind.row().advice != Advice::Never)
    {
        assert_eq!(wait(&mut once, &failed(*kind)), Err(GiveUp::Forbidden));
    }
    let mut twice = of(&Method::POST, Repeat::Allowed);
    assert!(wait(&mut twice, &failed(Kind::Timeout)).is_ok());
}

#[test]
fn each_stop_has_its_reason() {
    let busy = failed(Kind::Unavailable);
    let second = Some(Duration::from_secs(1));
    let secs = |n| hinted(Kind::Unavailable, Duration::from_secs(n));
    for (attempts, error, left, stop) in [
        (3, &busy, None, GiveUp::Attempts),
        (u32::MAX, &busy, None, GiveUp::Attempts),
        (
            1,
            &hinted(Kind::Unavailable, Duration::MAX),
            None,
            GiveUp::HintTooLong,
        ),
        (1, &secs(31), second, GiveUp::HintTooLong),
        (1, &secs(2), second, GiveUp::Deadline),
        (1, &secs(1), second, GiveUp::Deadline),
        (1, &busy, Some(Duration::ZERO), GiveUp::Deadline),
        // A wait of zero, and no time left.
        (
            1,
            &failed(Kind::InvalidToken),
            Some(Duration::ZERO),
            GiveUp::Deadline,
        ),
    ] {
        assert_eq!(
            after(&mut put(7, attempts), error, left),
            Err(stop),
            "{error:?}"
        );
    }
    let settings = Settings::default();
    for (attempts, stop) in [(1, GiveUp::NotReplayable), (3, GiveUp::Attempts)] {
        let decided = put(7, attempts).after(&busy, &settings, false, None);
        assert_eq!(decided, Err(stop));
    }
    let mut settled = failed(Kind::Unavailable);
    settled.set_gave_up(GiveUp::Forbidden);
    assert_eq!(wait(&mut put(7, 1), &settled), Err(GiveUp::Forbidden));
}

#[test]
fn a_connection_that_may_have_been_idle_is_met_once_and_not_counted() {
    for kind in Kind::ALL {
        let error = failed(*kind);
        let mut last = of(&Method::GET, 7, 3);
        let again = after(&mut last, &error, None);
        let free = Again {
            wait: Duration::ZERO,
            costs: Costs::Paid,
            is_counted: false,
        };
        assert_eq!(again == Ok(free), *kind == Kind::Reset, "{kind}");
        if let Ok(again) = again {
            last.note(&error, again);
            assert_eq!((last.attempts, last.counted), (4, 3));
        }
        assert!(after(&mut last, &error, None).is_err());
    }
}

#[test]
fn a_request_that_was_never_sent_costs_nothing() {
    for kind in Kind::ALL
        .iter()
        .filter(|kind| kind.row().advice != Advice::Never)
    {
        let again = after(&mut put(7, 1), &failed(*kind), None);
        let costs = match kind.row().sent {
            Sent::Never => Costs::Nothing,
            _ => Costs::Paid,
        };
        assert_eq!(again.map(|again| again.costs), Ok(costs), "{kind}");
        let paced = after(&mut put(7, 1), &failed(*kind).with_paced_retries(), None);
        assert_eq!(paced.map(|again| again.costs), Ok(Costs::Nothing), "{kind}");
    }
}

#[test]
fn the_longest_wait_itself_is_slept_and_none_is_longer() {
    let longest = Settings::default().longest_wait;
    for kind in [Kind::Throttled, Kind::Unavailable, Kind::RateExceeded] {
        for hint in [longest, longest / 2, longest - SILENCE] {
            for seed in 0..500 {
                let slept = wait(&mut put(seed, 2), &hinted(kind, hint)).unwrap();
                assert!((hint..=longest).contains(&slept), "{kind} {slept:?}");
            }
        }
    }
}

#[test]
fn the_longest_wait_holds_below_a_second_but_for_the_one_that_is_always_kept() {
    for longest in [Duration::from_millis(10), Duration::from_millis(500)] {
        let settings = Settings {
            longest_wait: longest,
            ..Settings::default()
        };
        let asked = |error: &Error, seed| {
            put(seed, 2)
                .after(error, &settings, true, None)
                .map(|again| again.wait)
        };
        for seed in 0..500 {
            for kind in [Kind::Unavailable, Kind::Connect, Kind::RangeUnclear] {
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
fn waits_are_drawn_up_to_their_bounds_and_after_a_hint_up_to_half_of_it_more() {
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
            let own = Settings::default().backoff.bound(attempt);
            prop_assert!(wait >= hint);
            prop_assert!(wait <= (hint + hint / 2).max(own + hint / 2).max(SILENCE * 2));
        }
    }

    #[test]
    fn a_second_of_silence_follows_a_423_and_a_429_without_a_hint(attempt in 1u32..3, seed: u64) {
        for kind in [Kind::RateExceeded, Kind::Throttled] {
            let wait = wait(&mut put(seed, attempt), &failed(kind));
            prop_assert!(wait.is_ok_and(|wait| wait >= SILENCE));
        }
    }

    #[test]
    fn a_hint_that_fits_is_never_refused_and_the_attempt_after_it_fits_too(
        kind in kinds(), hint in 0u64..5_000, more in 1u64..5_000, seed: u64,
    ) {
        prop_assume!(kind.row().advice != Advice::Never);
        let (hint, left) = (Duration::from_millis(hint), Duration::from_millis(hint + more));
        let again = after(&mut put(seed, 1), &hinted(kind, hint), Some(left));
        let floor = if kind == Kind::RateExceeded { hint.max(SILENCE) } else { hint };
        if floor < left {
            let wait = again.unwrap().wait;
            prop_assert!(wait >= floor && wait - floor <= (left - floor) / 2);
        } else {
            prop_assert_eq!(again, Err(GiveUp::Deadline));
        }
    }

    #[test]
    fn a_wait_always_fits_into_the_deadline(kind in kinds(), left in 0u64..5_000, seed: u64) {
        let left = Duration::from_millis(left);
        if let Ok(again) = after(&mut put(seed, 1), &failed(kind), Some(left)) {
            prop_assert!(again.wait < left);
        }
    }

    #[test]
    fn a_hint_makes_nothing_retryable(kind in kinds(), hint in 0u64..30_000) {
        let again = wait(&mut put(7, 1), &hinted(kind, Duration::from_millis(hint)));
        prop_assert_eq!(again.is_ok(), kind.row().advice != Advice::Never);
    }
}
