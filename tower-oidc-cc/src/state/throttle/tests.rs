//! Tests of the rule alone, and with a simulation of services, call rates and faults.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use http::StatusCode;

use super::{Backoff, CAP, HINT_CAP, REFUSED, Refusals};
use crate::{
    TokenError,
    error::Kind,
    state::{
        Action, Event, RefreshPolicy, State,
        tests::{secs, start, token},
    },
};

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

/// A service: the share of calls to a route that refuses all tokens, and a rule for the other calls.
struct Service {
    bad_route: f64,
    /// The time between two single refusals.
    stray: Duration,
    /// Whether a call is accepted, by the time since the start, the issue of the token, and a number in
    /// `0.0..1.0`.
    accepts: fn(Duration, Duration, f64) -> bool,
}

/// The behaviour of a token endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Endpoint {
    Up,
    Down,
    Hangs,
    /// Down for a minute after the first hour.
    Restarts,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Score {
    /// Calls to good routes that failed, with one resend where the layer allows it.
    failed: u32,
    calls: u32,
    requests: Vec<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    FlightEnds(bool),
    Call { is_bad: bool, is_resend: bool },
}

// === impl Score ===

impl Score {
    fn most_in_an_hour(&self) -> usize {
        let from = |at: usize, begin: Duration| {
            let rest = self.requests.iter().skip(at);
            rest.take_while(|it| **it < begin + secs(3_600)).count()
        };
        let counts = self.requests.iter().enumerate();
        counts
            .map(|(at, begin)| from(at, *begin))
            .max()
            .unwrap_or(0)
    }
}

/// Runs three hours of calls, one each `pace`.
fn run(service: &Service, endpoint: Endpoint, pace: Duration, seed: u64) -> Score {
    let mut chance = fastrand::Rng::with_seed(seed);
    let (start, mut score) = (start(), Score::default());
    let mut state = State::new(RefreshPolicy::Ahead, fastrand::f64);
    state.on(token(start, 86_400), start);
    let (mut issued, mut flight_ends) = (Duration::ZERO, Duration::ZERO);
    let mut held = Vec::new();
    let mut queue = BinaryHeap::new();
    let (mut at, mut stray) = (pace, service.stray);
    while at < HOURS {
        let is_bad = chance.f64() < service.bad_route;
        let call = Due::Call {
            is_bad,
            is_resend: false,
        };
        queue.push(Reverse((at, call)));
        at += pace.mul_f64(0.5 + chance.f64());
    }
    while let Some(Reverse((at, due))) = queue.pop() {
        let now = start.checked_add(at).unwrap();
        match due {
            Due::FlightEnds(succeeds) => {
                if succeeds {
                    state.on(token(now, 86_400), now);
                    issued = at;
                } else {
                    let down = Kind::Unavailable(StatusCode::SERVICE_UNAVAILABLE);
                    state.on(Event::Failed(TokenError::new(down)), now);
                }
                for is_bad in held.drain(..) {
                    let call = Due::Call {
                        is_bad,
                        is_resend: true,
                    };
                    queue.push(Reverse((at, call)));
                }
            }
            Due::Call { is_bad, is_resend } => {
                if let Action::JoinUntil(until) = state.on(Event::Needed, now) {
                    let wait = until.saturating_duration_since(now.steady);
                    let at = (at + wait).min(flight_ends.max(at));
                    queue.push(Reverse((at + Duration::from_micros(1), due)));
                    continue;
                }
                score.calls += u32::from(!is_resend && !is_bad);
                let generation = state.generation();
                let is_stray = !is_resend && at >= stray;
                if is_stray {
                    stray += service.stray;
                }
                let accepts = (service.accepts)(at, issued, chance.f64());
                if !is_bad && accepts && !is_stray {
                    state.on(Event::Accepted(generation), now);
                    continue;
                }
                let action = state.on(Event::Refused(generation), now);
                if let Action::Request = action {
                    score.requests.push(at);
                    let (after, succeeds) = endpoint.answer(at);
                    flight_ends = at + after;
                    queue.push(Reverse((flight_ends, Due::FlightEnds(succeeds))));
                }
                match action {
                    Action::Request | Action::Join if !is_resend => {
                        // A call is held for ten seconds at most, and a hanging request ends then.
                        held.push(is_bad);
                    }
                    _ => score.failed += u32::from(!is_bad),
                }
            }
        }
    }
    score
}

// === impl Endpoint ===

impl Endpoint {
    fn answer(self, at: Duration) -> (Duration, bool) {
        match self {
            Self::Up => (Duration::from_millis(50), true),
            Self::Down => (Duration::from_millis(5), false),
            Self::Hangs => (secs(10), false),
            Self::Restarts => (
                Duration::from_millis(50),
                !(secs(3_600)..secs(3_660)).contains(&at),
            ),
        }
    }
}

const HOURS: Duration = secs(3 * 3_600);
/// 0.2, 2 and 20 calls a second.
const PACES: [Duration; 3] = [
    secs(5),
    Duration::from_millis(500),
    Duration::from_millis(50),
];

/// The worst score of the three paces and of several seeds, by failed calls.
fn worst(service: &Service, endpoint: Endpoint) -> Score {
    let runs = PACES
        .into_iter()
        .flat_map(|pace| (0..3).map(move |seed| (pace, seed)));
    let scores = runs.map(|(pace, seed)| {
        let score = run(service, endpoint, pace, seed);
        assert!(
            score.most_in_an_hour() <= 16 || endpoint != Endpoint::Up,
            "{score:?}"
        );
        score
    });
    scores.max_by_key(|score| score.failed).unwrap()
}

/// A service that refuses tokens after `$secs`, whatever their `expires_in`.
macro_rules! lasting {
    ($secs:expr) => {
        Service {
            bad_route: 0.0,
            stray: HOURS,
            accepts: |at, issued, _| at < issued + secs($secs),
        }
    };
}

#[test]
fn tokens_revoked_after_five_minutes_or_later_fail_no_call() {
    for service in [
        lasting!(330),
        lasting!(20 * 60),
        lasting!(45 * 60),
        lasting!(70 * 60),
    ] {
        assert_eq!(worst(&service, Endpoint::Up).failed, 0);
    }
}

#[test]
fn tokens_revoked_sooner_cost_at_most_sixteen_requests_an_hour() {
    for service in [lasting!(15), lasting!(60), lasting!(200)] {
        let score = worst(&service, Endpoint::Up);
        assert!(score.most_in_an_hour() <= 16, "{}", score.most_in_an_hour());
    }
}

#[test]
fn stray_refusals_fail_no_call_in_any_endpoint_state() {
    for stray in [secs(310), secs(1_000)] {
        let service = Service {
            bad_route: 0.0,
            stray,
            accepts: |_, _, _| true,
        };
        for endpoint in [Endpoint::Up, Endpoint::Down, Endpoint::Hangs] {
            let score = worst(&service, endpoint);
            assert_eq!(score.failed, 0, "{endpoint:?} {:?}", score.requests);
        }
    }
}

#[test]
fn constant_refusals_cost_at_most_sixteen_requests_an_hour() {
    let service = Service {
        bad_route: 0.0,
        stray: HOURS,
        accepts: |_, _, _| false,
    };
    let score = worst(&service, Endpoint::Up);
    let first = score
        .requests
        .iter()
        .filter(|at| **at < secs(3_600))
        .count();
    assert!((12..=16).contains(&first), "{first}");
}

#[test]
fn a_route_that_always_refuses_fails_no_call_to_another() {
    for bad_route in [0.01, 0.1, 0.5, 0.9] {
        let service = Service {
            bad_route,
            stray: HOURS,
            accepts: |_, _, _| true,
        };
        let score = worst(&service, Endpoint::Up);
        assert_eq!(score.failed, 0, "{bad_route}");
    }
}

#[test]
fn a_revocation_beside_a_bad_route_fails_fifteen_calls_at_most() {
    let mut table = Vec::new();
    for bad_route in [0.01, 0.1, 0.5] {
        let service = Service {
            bad_route,
            stray: HOURS,
            accepts: |at, issued, _| at < REVOKED || issued >= REVOKED,
        };
        let score = worst(&service, Endpoint::Up);
        table.push((bad_route, score.failed));
    }
    println!("failed calls by share of the bad route: {table:?}");
    assert!(table.iter().all(|(_, failed)| *failed <= 15), "{table:?}");
}

#[test]
fn calls_recover_one_backoff_after_an_identity_server_restart() {
    let service = Service {
        bad_route: 0.0,
        stray: HOURS,
        accepts: |at, issued, _| at < secs(3_600) || issued >= secs(3_600),
    };
    for pace in PACES {
        let score = run(&service, Endpoint::Restarts, pace, 7);
        // The outage lasts a minute, and the backoff half of one.
        let most = secs(95).as_nanos().div_ceil(pace.as_nanos());
        assert!(
            u128::from(score.failed) <= most,
            "{pace:?}: {}",
            score.failed
        );
        assert!(score.failed > 0);
    }
}

#[test]
fn lagging_nodes_cost_at_most_sixteen_requests_an_hour() {
    let service = Service {
        bad_route: 0.0,
        stray: HOURS,
        accepts: |at, issued, draw| {
            let is_young = at < issued + secs(60) && issued > Duration::ZERO;
            (at < REVOKED || issued >= REVOKED) && !(is_young && draw < 0.33)
        },
    };
    let score = worst(&service, Endpoint::Up);
    println!(
        "failed calls beside nodes that lag: {} of {}",
        score.failed, score.calls
    );
    assert!(score.most_in_an_hour() <= 16);
}

/// In the middle of the second hour.
const REVOKED: Duration = secs(5_000);

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
fn backoff_restarts_after_a_success() {
    let mut backoff = Backoff::default();
    backoff.fail(true, None, ALMOST);
    backoff.fail(true, None, ALMOST);
    backoff.succeed();
    assert!(backoff.fail(true, None, ALMOST) <= Duration::from_secs(1));
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
