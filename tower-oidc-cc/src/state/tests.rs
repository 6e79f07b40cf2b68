use std::time::{Duration, SystemTime};

use http::StatusCode;
use proptest::prelude::*;
use tokio::time::Instant;

use super::{Action, Budget, Complaint, Event, Fetched, Life, Phase, RefreshPolicy};
use crate::{TokenError, clock::Timestamp, error::token::Kind};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn start() -> Timestamp {
    Timestamp {
        steady: Instant::now(),
        wall: SystemTime::UNIX_EPOCH + secs(1_000_000_000),
    }
}

/// What may happen next: after so many seconds, one of these.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ask,
    Look,
    /// The request under way brings a token of this life.
    Succeed(u64),
    Fail(bool),
    Accept(u64),
    Refuse(u64),
    ByHand,
    Unexplained,
    Lost,
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let step = prop_oneof![
        3 => Just(Step::Ask),
        6 => Just(Step::Look),
        4 => (1u64..90_000).prop_map(Step::Succeed),
        2 => any::<bool>().prop_map(Step::Fail),
        4 => (0u64..4).prop_map(Step::Accept),
        4 => (0u64..4).prop_map(Step::Refuse),
        1 => Just(Step::ByHand),
        1 => Just(Step::Unexplained),
        1 => Just(Step::Lost),
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
        let mut life = Life::new(RefreshPolicy::Ahead, Budget::default(), || 0.5);
        let (mut now, mut under_way, mut expires) = (start(), false, None::<Timestamp>);
        for (wait, step) in steps {
            now = now.checked_add(secs(wait)).unwrap();
            let generation = life.generation;
            let had = life.fresh_at(now).is_some();
            // A model of what there is: nothing but the expiry of the last token that came.
            prop_assert_eq!(had, expires.is_some_and(|at| !at.has_come_at(now)));
            match step {
                Step::Ask => {
                    let action = life.on(Event::Asked, now);
                    prop_assert_eq!(matches!(action, Action::Send), had);
                    if let Some(error) = action.failure() {
                        prop_assert!(!under_way);
                        prop_assert!(error.retry_after().is_some_and(|wait| wait <= secs(300)));
                    }
                }
                Step::Look => if let Action::Request = life.on(Event::Timer, now) {
                    prop_assert!(!under_way, "one request at a time");
                    under_way = true;
                    life.on(Event::Sending, now);
                },
                Step::Succeed(lasts) if under_way => {
                    let fetched = Fetched { fingerprint: generation, sent: now, life: secs(lasts), own: true };
                    let Action::Use(number, lifetime) = life.on(Event::Fetched(fetched), now) else {
                        return Err(TestCaseError::fail("a token is used"));
                    };
                    prop_assert_eq!(number, generation + 1);
                    expires = Some(lifetime.expires_at);
                    prop_assert_eq!(life.phase_at(now), Phase::Fresh);
                    under_way = false;
                }
                Step::Fail(transient) if under_way => {
                    let status = StatusCode::SERVICE_UNAVAILABLE;
                    let kind = if transient { Kind::Unavailable(status) } else { Kind::Rejected(status, "invalid_client") };
                    life.on(Event::Failed(TokenError::new(kind)), now);
                    under_way = false;
                }
                Step::Succeed(_) | Step::Fail(_) => {}
                Step::Lost => {
                    life.on(Event::Abandoned, now);
                    under_way = false;
                }
                Step::Accept(call) => drop(life.on(Event::Accepted(generation, call << 58), now)),
                Step::Refuse(call) => drop(life.on(Event::Refused(generation, Complaint::Dead(call << 58)), now)),
                Step::ByHand => drop(life.on(Event::Refused(generation, Complaint::ByHand), now)),
                Step::Unexplained => drop(life.on(Event::Refused(generation, Complaint::Unexplained), now)),
            }
            // Nothing that is said against a token takes it away.
            let fresh = life.fresh_at(now).is_some();
            prop_assert!(fresh || !had, "{:?}", step);
            // And if one is wanted, it is asked for sooner or later.
            if fresh && !under_way {
                prop_assert!(life.health_at(now).next_attempt() <= secs(24 * 3_600));
            }
        }
    }
}

#[test]
fn a_token_is_no_successor_of_itself_however_young_it_looks() {
    let mut life = Life::new(RefreshPolicy::default(), Budget::default(), || 0.5);
    let (now, lasts) = (start(), secs(100));
    let fetched = |fingerprint, life| Fetched {
        fingerprint,
        sent: now,
        life,
        own: false,
    };
    assert!(life.wants_at(now, &fetched(1, lasts)));
    life.on(Event::Fetched(fetched(1, lasts)), now);
    let longer = lasts + Duration::from_micros(1);
    assert!(life.wants_at(now, &fetched(2, longer)));
    assert!(!life.wants_at(now, &fetched(1, longer)));
}

#[test]
fn a_refusal_of_another_generation_says_nothing() {
    let (mut life, now) = (
        Life::new(RefreshPolicy::Ahead, Budget::default(), || 0.5),
        start(),
    );
    let fetched = Fetched {
        fingerprint: 1,
        sent: now,
        life: secs(100),
        own: true,
    };
    life.on(Event::Fetched(fetched), now);
    let action = life.on(Event::Refused(0, Complaint::Dead(1)), now);
    assert!(matches!(action, Action::Superseded));
    assert_eq!(life.phase_at(now), Phase::Fresh);
    life.on(Event::Refused(1, Complaint::Dead(1)), now);
    assert_eq!(life.phase_at(now), Phase::Doubted);
    let later = now.checked_add(secs(100)).unwrap();
    assert_eq!(life.phase_at(later), Phase::Expired);
}

#[test]
fn a_courtesy_leaves_what_was_refused_by_hand_due() {
    let mut life = Life::new(RefreshPolicy::Ahead, Budget::default(), || 0.5);
    let now = start();
    let at = |wait| now.checked_add(secs(wait)).unwrap();
    for turn in 0..2 {
        let fetched = Fetched {
            fingerprint: turn,
            sent: at(turn),
            life: secs(86_400),
            own: true,
        };
        life.on(Event::Fetched(fetched), at(turn));
        life.on(Event::Refused(turn + 1, Complaint::ByHand), at(turn));
        // The second one is invalidated young: its successor is a minute away.
        let due = matches!(life.on(Event::Timer, at(turn)), Action::Request);
        assert_eq!(due, turn == 0);
    }
    // Somebody asks without need meanwhile, and the endpoint is down.
    life.on(Event::Refused(2, Complaint::Unexplained), at(2));
    assert!(matches!(life.on(Event::Timer, at(2)), Action::Request));
    let down = Kind::Unavailable(StatusCode::SERVICE_UNAVAILABLE);
    life.on(Event::Failed(TokenError::new(down)), at(2));
    assert!(matches!(life.on(Event::Timer, at(70)), Action::Request));
}

/// An hour of a service that takes tokens or not by chance: how many token requests it makes.
fn requests_by_chance(seed: u64, places: u64, refusals: f64, pace: Duration) -> usize {
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut life = Life::new(RefreshPolicy::Ahead, Budget::default(), || 0.5);
    let (begin, mut now, mut requests) = (start(), start(), 0);
    while now.age_at(begin).max(begin.age_at(now)) < secs(3_600) {
        now = now.checked_add(pace).unwrap();
        life.on(Event::Asked, now);
        if let Action::Request = life.on(Event::Timer, now) {
            if let Action::Fail(error) = life.on(Event::Sending, now) {
                life.on(Event::Failed(error), now);
                continue;
            }
            requests += 1;
            let fetched = Fetched {
                fingerprint: life.generation,
                sent: now,
                life: secs(86_400),
                own: true,
            };
            life.on(Event::Fetched(fetched), now);
        }
        let (generation, call) = (life.generation, chance.u64(0..places) << 52);
        if chance.f64() < refusals {
            life.on(Event::Refused(generation, Complaint::Dead(call)), now);
        } else if life.heard() & super::group(call) == 0 {
            // As the layer reports it: what is no news is not heard.
            life.on(Event::Accepted(generation, call), now);
        }
    }
    requests
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_service_that_takes_tokens_by_chance_storms_nothing(
        seed in any::<u64>(),
        places in 1u64..2_000,
        refusals in 0.0..1.0,
        pace in 50u64..5_000,
    ) {
        let requests = requests_by_chance(seed, places, refusals, Duration::from_millis(pace));
        prop_assert!(requests <= 240, "{}", requests);
    }
}
