use std::time::{Duration, SystemTime};

use http::StatusCode;
use proptest::prelude::*;
use tokio::time::Instant;

use super::{Action, Current, Event, Notice, Phase, Reason, State};
use crate::{
    TokenError,
    clock::Timestamp,
    error::Kind,
    reply::{AccessToken, Fetched, Issued},
};

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
    State::new(None, || 0.5)
}

/// A token that no other test has.
fn token(sent: Timestamp, life: u64) -> Event {
    Event::Fetched(issued(&fastrand::u64(..).to_string(), sent, life))
}

fn issued(token: &str, sent: Timestamp, life: u64) -> Issued {
    Issued {
        token: AccessToken::new(token).unwrap(),
        fetched: Fetched {
            sent,
            life: secs(life),
            is_own: true,
        },
    }
}

fn in_use(state: &State, now: Timestamp) -> u64 {
    state.in_use_at(now).map_or(0, |token| token.generation)
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
    fn state_invariants_hold_for_any_order_of_events(steps in prop::collection::vec(step(), 1..200)) {
        let mut state = state();
        let (mut now, mut in_flight) = (start(), false);
        // A model of the tokens: the expiries of all that came.
        let mut expiries: Vec<Timestamp> = Vec::new();
        let mut refreshes = Vec::new();
        for (wait, step) in steps {
            now = now.checked_add(secs(wait)).unwrap();
            let generation = state.generation();
            let had = state.in_use_at(now).is_some();
            let has = |at: &Timestamp| !at.has_come_at(now);
            prop_assert!(!had || expiries.iter().any(has));
            prop_assert!(had || !expiries.last().is_some_and(has), "the newest is never lost");
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
                    prop_assert!(had || !matches!(action, Action::Send));
                    action
                }
                Step::Look => state.on(Event::Timer, now),
                Step::Succeed(life) if in_flight => {
                    let before = in_use(&state, now);
                    state.on(token(now, life), now);
                    prop_assert_eq!(state.generation(), generation + 1);
                    let after = in_use(&state, now);
                    // A refused one may make room, even if its turn had come again.
                    prop_assert!(after == before || after == generation + 1 || had);
                    expiries.push(now.checked_add(secs(life)).unwrap());
                    prop_assert_eq!(state.phase_at(now), Phase::Fresh);
                    in_flight = false;
                    Action::Rest
                }
                Step::Fail(transient) if in_flight => {
                    let refused = Kind::Rejected(StatusCode::UNAUTHORIZED, Some("invalid_client"));
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
            prop_assert!(state.in_use_at(now).is_some() || !had, "{:?}", step);
        }
    }

    #[test]
    fn random_refusals_cause_at_most_sixteen_requests_an_hour(
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
fn refusal_of_another_generation_is_ignored() {
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
fn doubted_token_is_not_replaced_by_an_earlier_one() {
    let (mut state, now) = (state(), start());
    let later = now.checked_add(secs(1)).unwrap();
    let prefers = |state: &State, now, sent, life| {
        let other = issued("another", sent, life);
        Current::is_worse_than(state.current_at(now).as_ref(), &other, now)
    };
    assert!(prefers(&state, now, now, 100));
    state.on(token(now, 100), now);
    // A token in use is replaced by a token that lives longer.
    assert!(prefers(&state, now, now, 101));
    assert!(!prefers(&state, now, now, 100));
    state.on(Event::Refused(1), now);
    let before = now.checked_sub(secs(1)).unwrap();
    assert!(!prefers(&state, later, before, 86_400));
    assert!(prefers(&state, later, later, 50));
}

/// A state whose second token is in reserve. The first was accepted.
fn state_in_reserve(life: u64, now: Timestamp) -> State {
    let mut state = state();
    state.on(token(now, life), now);
    state.on(Event::Accepted(1), now);
    let due = now.checked_add(secs(life * 3 / 4)).unwrap();
    state.on(Event::Timer, due);
    state.on(token(due, life), due);
    state
}

#[test]
fn the_older_token_is_used_until_half_of_what_it_had_left_is_over() {
    for life in [86_400, 3_600, 800, 80] {
        let now = start();
        let at = |wait| now.checked_add(secs(wait)).unwrap();
        let state = state_in_reserve(life, now);
        let half = at(life * 7 / 8 - 1);
        assert_eq!((state.generation(), in_use(&state, half)), (2, 1));
        assert_eq!(state.settled_at(half), Some(1), "calls take no lock");
        // Either may come first afterwards: the timer or a call.
        for event in [Event::Timer, Event::Needed] {
            let mut state = state_in_reserve(life, now);
            assert!(matches!(state.on(Event::Timer, half), Action::Sleep(_)));
            let after = at(life * 7 / 8 + 1);
            state.on(event, after);
            assert_eq!(in_use(&state, after), 2, "{life}");
            assert_eq!(state.settled_at(after), None, "it may be refused");
            state.on(Event::Accepted(2), after);
            assert_eq!(state.settled_at(after), Some(2), "{life}");
        }
    }
}

#[test]
fn of_two_refused_tokens_each_is_sent_in_turn() {
    let now = start();
    let at = |wait: u64| now.checked_add(secs(2_700 + wait)).unwrap();
    let mut state = state_in_reserve(3_600, now);
    assert!(matches!(
        state.on(Event::Refused(1), at(1)),
        Action::Superseded
    ));
    assert_eq!((in_use(&state, at(1)), state.flights()), (2, 1));
    // The first is dead, so a third is requested; the second may be too young.
    assert!(matches!(
        state.on(Event::Refused(2), at(2)),
        Action::Request
    ));
    state.on(Event::Failed(down()), at(2));
    for (wait, used) in [(3, 1), (4, 2), (5, 1)] {
        assert_eq!(in_use(&state, at(wait)), used);
        state.on(Event::Refused(used), at(wait));
    }
    state.on(Event::Accepted(1), at(6));
    assert_eq!(in_use(&state, at(6)), 1);
    state.on(Event::Accepted(2), at(7));
    assert_eq!(
        in_use(&state, at(3_000)),
        2,
        "an accepted newer one is enough"
    );
}

#[test]
fn two_young_tokens_wait_for_the_clock_and_a_third_comes_minutes_later() {
    let (mut state, now) = (state(), start());
    let at = |wait: u64| now.checked_add(secs(wait)).unwrap();
    state.on(token(now, 86_400), now);
    assert!(matches!(state.on(Event::Refused(1), now), Action::Request));
    state.on(token(now, 86_400), now);
    let mut requests = Vec::new();
    for second in 0..600 {
        let used = in_use(&state, at(second));
        match state.on(Event::Refused(used), at(second)) {
            Action::Request => {
                requests.push(second);
                state.on(token(at(second), 86_400), at(second));
            }
            Action::SendAfter(wait) => assert_eq!(wait, secs(2)),
            action => assert!(
                matches!(action, Action::Rest | Action::Superseded),
                "{action:?}"
            ),
        }
    }
    assert_eq!(requests, [225, 450]);
    state.on(Event::Accepted(1), at(600));
    assert_eq!(in_use(&state, at(600)), 1, "the oldest is kept");
}

#[test]
fn the_same_token_again_is_requested_four_times_at_most() {
    for life in [30, 300, 3_600, 86_400] {
        let (mut state, begin) = (state(), start());
        let (mut now, mut requests) = (begin, 1);
        state.on(Event::Fetched(issued("cached", begin, life)), begin);
        loop {
            match state.on(Event::Timer, now) {
                Action::Sleep(wait) => now = now.checked_add(wait).unwrap(),
                Action::Request => {
                    requests += 1;
                    let left = secs(life) - now.steady.duration_since(begin.steady);
                    // Servers return whole seconds.
                    let again = issued("cached", now, left.as_secs());
                    state.on(Event::Fetched(again), now);
                    assert_eq!(state.generation(), 1, "{life}");
                }
                action => {
                    assert!(state.in_use_at(now).is_none(), "{life}: {action:?}");
                    break;
                }
            }
        }
        assert!(requests <= 4, "{life}: {requests}");
    }
}

#[test]
fn a_token_whose_life_is_extended_is_renewed_without_end() {
    let (mut state, mut now) = (state(), start());
    for _ in 0..20 {
        state.on(Event::Fetched(issued("sliding", now, 1_000)), now);
        now = now.checked_add(secs(750)).unwrap();
        assert!(matches!(state.on(Event::Timer, now), Action::Request));
    }
}

#[test]
fn a_call_without_a_token_fails_until_the_backoff_is_over() {
    let (mut state, now) = (state(), start());
    let at = |millis| now.checked_add(Duration::from_millis(millis)).unwrap();
    assert_eq!(state.phase_at(now), Phase::Absent);
    assert!(matches!(state.on(Event::Needed, now), Action::Request));
    assert!(matches!(state.on(Event::Needed, now), Action::Join));
    state.on(Event::Failed(down()), now);
    // Half of the first ceiling, by the draw.
    let Action::Fail(error) = state.on(Event::Needed, at(499)) else {
        panic!("the endpoint is in its backoff");
    };
    assert_eq!(error.retry_after(), Some(Duration::from_millis(1)));
    assert!(matches!(state.on(Event::Needed, at(500)), Action::Request));
    state.on(token(at(500), 100), at(500));
    assert!(matches!(state.on(Event::Needed, at(500)), Action::Send));
    let expired = at(100_500);
    assert!(matches!(state.on(Event::Needed, expired), Action::Request));
    assert_eq!(state.phase_at(expired), Phase::Expired);
    state.on(token(expired, 100), expired);
    let reasons: Vec<Reason> = state
        .take_notices()
        .into_iter()
        .filter_map(|notice| match notice {
            Notice::Renewed(_, reason, ..) | Notice::Failed(_, reason) => Some(reason),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, [Reason::Start, Reason::Start, Reason::Expiry]);
}

#[test]
fn a_token_is_settled_while_it_is_not_due_and_was_accepted_last() {
    let (mut state, now) = (state(), start());
    let due = now.checked_add(secs(750)).unwrap();
    assert_eq!(state.settled_at(now), None);
    state.on(token(now, 1_000), now);
    assert_eq!(state.settled_at(now), None, "it may be refused");
    state.on(Event::Accepted(1), now);
    assert_eq!(state.settled_at(now), Some(1));
    assert_eq!(state.settled_at(due), None);
    state.on(Event::Refused(1), now);
    assert_eq!(state.settled_at(now), None);
    state.on(token(now, 1_000), now);
    assert_eq!(state.settled_at(now), None, "the service may refuse it too");
    state.on(Event::Accepted(1), now);
    assert_eq!(state.settled_at(now), None, "another token was accepted");
    state.on(Event::Accepted(2), now);
    assert_eq!(state.settled_at(now), Some(2));
}

#[test]
fn an_acceptance_ends_the_wait_of_calls_for_another_token() {
    let (mut state, now) = (state(), start());
    state.on(token(now, 1_000), now);
    assert!(matches!(state.on(Event::Refused(1), now), Action::Request));
    assert!(matches!(state.on(Event::Needed, now), Action::JoinUntil(_)));
    state.on(Event::Accepted(1), now);
    assert!(matches!(state.on(Event::Needed, now), Action::Send));
}

#[test]
fn refusals_in_a_row_are_logged_once_and_failures_once_a_minute_and_when_their_kind_changes() {
    let (mut state, now) = (state(), start());
    let at = |wait| now.checked_add(secs(wait)).unwrap();
    state.on(token(now, 1_000), now);
    state.take_notices();
    let logged = |state: &mut State| state.take_notices().len();
    for (event, expected) in [(Event::Refused(1), 1), (Event::Refused(1), 0)] {
        state.on(event, now);
        assert_eq!(logged(&mut state), expected);
    }
    let refused = || {
        TokenError::new(Kind::Rejected(
            StatusCode::UNAUTHORIZED,
            Some("invalid_client"),
        ))
    };
    for (wait, error, expected) in [
        (0, down(), 1),
        (59, down(), 0),
        (60, down(), 1),
        (61, refused(), 1),
        (62, refused(), 0),
        (63, down(), 1),
    ] {
        state.on(Event::Failed(error), at(wait));
        assert_eq!(logged(&mut state), expected, "{wait}");
    }
}
