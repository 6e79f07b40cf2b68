use std::time::{Duration, SystemTime};

use http::StatusCode;
use proptest::prelude::*;
use tokio::time::Instant;

use super::{Action, Event, Fetched, Phase, RefreshPolicy, State};
use crate::{TokenError, clock::Timestamp, error::Kind};

pub(super) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(super) fn start() -> Timestamp {
    Timestamp {
        steady: Instant::now(),
        wall: SystemTime::UNIX_EPOCH + secs(1_000_000_000),
    }
}

fn state() -> State {
    State::new(RefreshPolicy::Ahead, || 0.5)
}

fn token(sent: Timestamp, life: u64) -> Event {
    Event::Fetched(fetched(sent, life))
}

fn fetched(sent: Timestamp, life: u64) -> Fetched {
    Fetched {
        sent,
        life: secs(life),
        is_own: true,
    }
}

fn down() -> TokenError {
    TokenError::new(Kind::Unavailable(StatusCode::SERVICE_UNAVAILABLE))
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask,
    Look,
    /// The request in flight brings a token of this life.
    Succeed(u64),
    Fail(bool),
    Accept,
    Refuse,
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let step = prop_oneof![
        3 => Just(Step::Ask),
        6 => Just(Step::Look),
        4 => (1u64..90_000).prop_map(Step::Succeed),
        2 => any::<bool>().prop_map(Step::Fail),
        4 => Just(Step::Accept),
        4 => Just(Step::Refuse),
    ];
    (
        prop_oneof![3 => 0u64..3, 2 => 3u64..400, 1 => 400u64..20_000],
        step,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_events_keeps_the_promises(steps in prop::collection::vec(step(), 1..200)) {
        let mut state = state();
        let (mut now, mut in_flight, mut expires) = (start(), false, None::<Timestamp>);
        let mut refreshes = Vec::new();
        for (wait, step) in steps {
            now = now.checked_add(secs(wait)).unwrap();
            let generation = state.generation();
            let had = state.valid_at(now).is_some();
            // A model of the token: nothing but the expiry of the last one that came.
            prop_assert_eq!(had, expires.is_some_and(|at| !at.has_come_at(now)));
            let action = match step {
                Step::Ask => {
                    let action = state.on(Event::Needed, now);
                    if let Action::Fail(error) = &action {
                        prop_assert!(!in_flight && !had);
                        prop_assert!(error.retry_after().is_some_and(|wait| wait <= secs(300)));
                    }
                    if let Action::JoinUntil(until) = action {
                        prop_assert!(had && in_flight && until <= now.steady + secs(1));
                    }
                    action
                }
                Step::Look => state.on(Event::Timer, now),
                Step::Succeed(life) if in_flight => {
                    let Action::Use(number, lifetime) = state.on(token(now, life), now) else {
                        return Err(TestCaseError::fail("a token is used"));
                    };
                    prop_assert_eq!(number, generation + 1);
                    expires = Some(lifetime.expires_at);
                    prop_assert_eq!(state.phase_at(now), Phase::Fresh);
                    in_flight = false;
                    Action::Rest
                }
                Step::Fail(transient) if in_flight => {
                    let refused = Kind::Rejected(StatusCode::UNAUTHORIZED, "invalid_client");
                    let error = if transient { down() } else { TokenError::new(refused) };
                    state.on(Event::Failed(error), now);
                    in_flight = false;
                    Action::Rest
                }
                Step::Succeed(_) | Step::Fail(_) => Action::Rest,
                Step::Accept => state.on(Event::Accepted(generation), now),
                Step::Refuse => {
                    let action = state.on(Event::Refused(generation), now);
                    if had && matches!(action, Action::Request) {
                        refreshes.push(now);
                    }
                    action
                }
            };
            if let Action::Request = action {
                prop_assert!(!in_flight, "one request at a time");
                in_flight = true;
            }
            // No refusal removes the token.
            prop_assert!(state.valid_at(now).is_some() || !had, "{:?}", step);
        }
    }

    #[test]
    fn refusals_by_chance_cause_sixteen_requests_in_an_hour(
        seed in any::<u64>(),
        refusals in 0.0..1.0,
        pace in 50u64..5_000,
    ) {
        let mut chance = fastrand::Rng::with_seed(seed);
        let (mut state, begin) = (state(), start());
        state.on(token(begin, 86_400), begin);
        let (mut passed, mut requests) = (Duration::ZERO, 0);
        while passed < secs(3_600) {
            passed += Duration::from_millis(pace);
            let now = begin.checked_add(passed).unwrap();
            let generation = state.generation();
            if chance.f64() >= refusals {
                state.on(Event::Accepted(generation), now);
            } else if let Action::Request = state.on(Event::Refused(generation), now) {
                requests += 1;
                state.on(token(now, 86_400), now);
            }
        }
        prop_assert!(requests <= 16, "{}", requests);
    }
}

#[test]
fn a_refusal_of_another_generation_says_nothing() {
    let (mut state, now) = (state(), start());
    state.on(token(now, 100), now);
    let action = state.on(Event::Refused(0), now);
    assert!(matches!(action, Action::Superseded));
    assert_eq!(state.phase_at(now), Phase::Fresh);
    state.on(Event::Refused(1), now);
    assert_eq!(state.phase_at(now), Phase::Doubted);
    let later = now.checked_add(secs(100)).unwrap();
    assert_eq!(state.phase_at(later), Phase::Expired);
}

#[test]
fn a_doubted_token_gives_way_to_none_that_was_requested_earlier() {
    let (mut state, now) = (state(), start());
    let later = now.checked_add(secs(1)).unwrap();
    assert!(state.prefers_at(now, &fetched(now, 100)));
    state.on(token(now, 100), now);
    // A token in use is replaced by a token that lives longer.
    assert!(state.prefers_at(now, &fetched(now, 101)));
    assert!(!state.prefers_at(now, &fetched(now, 100)));
    state.on(Event::Refused(1), now);
    let before = now.checked_sub(secs(1)).unwrap();
    assert!(!state.prefers_at(later, &fetched(before, 86_400)));
    assert!(state.prefers_at(later, &fetched(later, 50)));
}

#[test]
fn calls_wait_a_second_for_the_replacement_of_a_doubted_token() {
    let (mut state, now) = (state(), start());
    state.on(token(now, 1_000), now);
    assert!(matches!(state.on(Event::Refused(1), now), Action::Request));
    let half = now.checked_add(Duration::from_millis(500)).unwrap();
    let Action::JoinUntil(until) = state.on(Event::Needed, half) else {
        panic!("a call waits");
    };
    assert_eq!(until, now.steady + secs(1));
    let after = now.checked_add(secs(1)).unwrap();
    assert!(matches!(state.on(Event::Needed, after), Action::Send));
}

#[test]
fn a_failed_refresh_follows_the_next_refusal_after_its_backoff() {
    let (mut state, now) = (state(), start());
    let at = |wait| now.checked_add(secs(wait)).unwrap();
    state.on(token(now, 86_400), now);
    state.on(Event::Refused(1), now);
    state.on(Event::Failed(down()), now);
    assert!(matches!(state.on(Event::Refused(1), now), Action::Rest));
    // The first backoff lasts a second at most.
    assert!(matches!(
        state.on(Event::Refused(1), at(1)),
        Action::Request
    ));
    state.on(token(at(1), 86_400), at(1));
    assert_eq!(state.phase_at(at(1)), Phase::Fresh);
}
