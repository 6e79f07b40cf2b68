//! Invariants under any order of events. The worlds that a source lives in are in `tests/layer`.

use std::time::{Duration, SystemTime};

use http::StatusCode;
use proptest::prelude::*;
use tokio::time::Instant;

use super::{Need, State};
use crate::{
    TokenError,
    clock::Timestamp,
    error::ErrorKind,
    reply::{AccessToken, Issued},
};

pub(super) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn start() -> Timestamp {
    Timestamp {
        steady: Instant::now(),
        wall: SystemTime::UNIX_EPOCH + secs(1_000_000_000),
    }
}

fn state() -> State {
    State::new(None, || 0.5)
}

/// A token that no other test has.
fn token(sent: Timestamp, life: u64) -> Issued {
    Issued {
        token: AccessToken::new(&fastrand::u64(..).to_string()).unwrap(),
        sent,
        life: secs(life),
        is_own: true,
    }
}

fn in_use(state: &State, now: Timestamp) -> u64 {
    state.in_use_at(now).map_or(0, |token| token.generation)
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
        let (mut state, mut now) = (state(), start());
        // A model of the tokens: the expiries of all that came.
        let mut expiries: Vec<Timestamp> = Vec::new();
        for (wait, step) in steps {
            now = now.checked_add(secs(wait)).unwrap();
            let (generation, flight) = (state.generation, state.in_flight());
            let had = state.in_use_at(now).is_some();
            let has = |at: &Timestamp| !at.has_come_at(now);
            prop_assert!(!had || expiries.iter().any(has));
            prop_assert!(had || !expiries.last().is_some_and(has), "the newest is never lost");
            match step {
                Step::Ask => match state.need(now) {
                    Ok(Need::Send(_)) => prop_assert!(had),
                    Ok(Need::Wait(until)) => {
                        prop_assert!(state.in_flight().is_some());
                        prop_assert!(!had || until.is_some_and(|it| it <= now.steady + secs(1)));
                    }
                    Err(error) => {
                        prop_assert!(flight.is_none() && !had);
                        prop_assert!(error.retry_after().is_some_and(|wait| wait <= secs(300)));
                    }
                },
                Step::Look => drop(state.tick(now)),
                Step::Succeed(life) if flight.is_some() => {
                    let before = in_use(&state, now);
                    state.fetched(token(now, life), now);
                    prop_assert_eq!(state.generation, generation + 1);
                    let after = in_use(&state, now);
                    // A refused one may make room, even if its turn had come again.
                    prop_assert!(after == before || after == generation + 1 || had);
                    expiries.push(now.checked_add(secs(life)).unwrap());
                }
                Step::Fail(is_transient) if flight.is_some() => {
                    let status = StatusCode::UNAUTHORIZED;
                    let kind = if is_transient { ErrorKind::Unavailable(status) } else { ErrorKind::Rejected(status) };
                    state.failed(&TokenError::new(kind), now);
                }
                Step::Succeed(_) | Step::Fail(_) => {}
                Step::Accept => state.accepted(generation, now),
                Step::Refuse => {
                    if state.refused(generation, now).is_ok() {
                        prop_assert!(state.in_flight().is_some());
                    }
                }
            }
            // One request at a time, and no refusal removes the token.
            prop_assert!(flight.is_none() || state.in_flight().is_none_or(|it| Some(it) == flight));
            prop_assert!(state.in_use_at(now).is_some() || !had, "{:?}", step);
        }
    }
}
