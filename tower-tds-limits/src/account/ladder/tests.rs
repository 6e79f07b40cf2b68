mod properties;

use super::*;

const SECOND: u64 = 1_000_000_000;

const MINUTES: u64 = 60 * SECOND;

/// A crowd that a small burst would have withheld.
const BURST: Crowd = Crowd {
    bunched: 9,
    live: 9,
};

fn at(nanos: u64) -> Tick {
    Tick::ZERO.plus(nanos)
}

impl Ladder {
    /// A ladder that stands on this rung.
    pub(crate) fn on(rung: Rung) -> Self {
        let (burst, slowed) = match rung {
            Rung::Proven => (None, 0),
            Rung::Strict => (Some(SMALL_BURST), 0),
            Rung::Serial => (Some(0), 0),
            Rung::Slowed(times) => (Some(0), times),
        };
        Self {
            step: Step { burst, slowed },
            returns_at: at(SECOND + 10 * MINUTES),
            ..Self::new()
        }
    }
}

fn fifty() -> Quota {
    Quota::per_second(NonZeroU32::new(50).expect("50 is not zero"))
}

/// Whether a request that was granted in this crowd, and refused at once, leads to another rung.
fn refuse(ladder: &mut Ladder, now: Tick, crowd: Crowd) -> bool {
    ladder.refuse(now, now, crowd, fifty())
}

/// Records three refusals at once. Returns the rung that they lead to.
fn refuse_three(ladder: &mut Ladder, now: Tick, crowd: Crowd) -> Rung {
    let led = [(); 3].map(|()| refuse(ladder, now, crowd));
    assert_eq!(led, [false, false, true], "{crowd:?}");
    ladder.rung()
}

fn accept(ladder: &mut Ladder, now: Tick, times: u32) {
    for _ in 0..times {
        ladder.accept(now);
    }
}

#[test]
fn step_down_chooses_the_first_rung_that_prevents_the_refusals() {
    let crowd = |bunched, live| Crowd { bunched, live };
    for (crowd, rung) in [
        // The remedies in order: a small burst, one request at a time, fewer requests in a second.
        (crowd(6, 8), Rung::Strict),
        (crowd(5, 8), Rung::Serial),
        (crowd(1, 1), Rung::Serial),
        (crowd(4, 40), Rung::Slowed(1)),
        (crowd(6, 39), Rung::Slowed(2)),
        (crowd(0, 10), Rung::Slowed(7)),
        // Small bursts, if about half are bunched.
        (crowd(20, 41), Rung::Strict),
        (crowd(20, 42), Rung::Slowed(1)),
    ] {
        let mut ladder = Ladder::new();
        assert_eq!(refuse_three(&mut ladder, at(SECOND), crowd), rung);
    }
}

#[test]
fn rare_refusals_keep_the_rung() {
    let mut ladder = Ladder::new();
    for n in 1..1_000 {
        let now = at(n * 30 * SECOND);
        assert!(!refuse(&mut ladder, now, BURST));
        accept(&mut ladder, now, 100);
    }
    assert_eq!(ladder.rung(), Rung::Proven);
}

#[test]
fn one_refusal_in_forty_steps_down_at_the_fourth() {
    let mut ladder = Ladder::new();
    let found = (1..100).find(|n| {
        let now = at(n * 2 * SECOND);
        accept(&mut ladder, now, 40);
        refuse(&mut ladder, now, BURST)
    });
    assert_eq!((found, ladder.rung()), (Some(4), Rung::Strict));
}

#[test]
fn refusals_of_older_grants_move_nothing() {
    let mut ladder = Ladder::new();
    refuse_three(&mut ladder, at(SECOND), BURST);
    for late in 1..=40 {
        let now = at(SECOND + late * 20_000_000);
        assert!(!ladder.refuse(now, at(1), BURST, fifty()));
    }
    assert_eq!(ladder.rung(), Rung::Strict);
}

/// The same at a lower rung: nothing delays the return.
#[test]
fn refusals_that_no_rung_would_have_avoided_move_nothing() {
    let mut ladder = Ladder::on(Rung::Serial);
    let alone = Crowd {
        bunched: 0,
        live: 2,
    };
    for second in 2..600 {
        assert!(!refuse(&mut ladder, at(second * SECOND), alone));
    }
    assert_eq!(ladder.rung(), Rung::Serial);
    assert!(ladder.accept(at(SECOND + 10 * MINUTES)));
    assert_eq!(ladder.rung(), Rung::Proven);
}

#[test]
fn serial_rung_slows_until_hardly_any_request_is_live() {
    let mut ladder = Ladder::on(Rung::Serial);
    let mut now = at(SECOND);
    loop {
        now = now.plus(SECOND);
        // The whole rate is used.
        let (kept, _) = ladder.keeps(fifty(), Rules::window());
        let crowd = Crowd {
            bunched: 0,
            live: u64::from(kept.requests().get()) - 1,
        };
        if crowd.live < FEW {
            break;
        }
        refuse_three(&mut ladder, now, crowd);
    }
    assert_eq!(ladder.rung(), Rung::Slowed(11));
}

#[test]
fn failed_return_doubles_the_ten_minutes_to_the_next() {
    let mut ladder = Ladder::new();
    let mut now = at(SECOND);
    refuse_three(&mut ladder, now, BURST);
    for minutes in [10, 20, 40, 80] {
        assert!(!ladder.accept(now.plus(minutes * MINUTES - 1)), "{minutes}");
        now = now.plus(minutes * MINUTES);
        assert!(ladder.accept(now), "{minutes}");
        assert_eq!(ladder.rung(), Rung::Proven);
        now = now.plus(SECOND);
        assert_eq!(refuse_three(&mut ladder, now, BURST), Rung::Strict);
    }
}

/// For example a stranger behind the address who sends more than the rate for a minute.
#[test]
fn limiter_returns_from_the_slowest_rung_in_ten_minutes() {
    for (after, minutes) in [(0, 20), (9, 20), (10, 10)] {
        let mut ladder = Ladder::on(Rung::Slowed(SLOWEST));
        let now = at(SECOND + 10 * MINUTES);
        assert!(!ladder.accept(now.minus(1)));
        assert!(ladder.accept(now));
        assert_eq!(ladder.rung(), Rung::Proven);
        // Refusals soon after mean that the return has failed, and later ones are another storm.
        let storm = now.plus(after * MINUTES);
        accept(&mut ladder, storm, 100);
        refuse_three(&mut ladder, storm.plus(1), BURST);
        let again = storm.plus(1 + minutes * MINUTES);
        assert!(!ladder.accept(again.minus(1)), "{after}");
        assert!(ladder.accept(again), "{after}");
    }
}

#[test]
fn each_further_move_delays_the_return() {
    let mut ladder = Ladder::new();
    refuse_three(&mut ladder, at(SECOND), BURST);
    let one = Crowd {
        bunched: 1,
        live: 1,
    };
    let now = at(9 * MINUTES);
    assert_eq!(refuse_three(&mut ladder, now, one), Rung::Serial);
    assert!(!ladder.accept(now.plus(10 * MINUTES - 1)));
    assert!(ladder.accept(now.plus(10 * MINUTES)));
}

#[test]
fn rare_refusal_does_not_delay_the_return() {
    let mut ladder = Ladder::new();
    let now = at(SECOND);
    refuse_three(&mut ladder, now, BURST);
    assert!(!refuse(&mut ladder, now.plus(9 * MINUTES), BURST));
    assert!(ladder.accept(now.plus(10 * MINUTES)));
    assert_eq!(ladder.rung(), Rung::Proven);
}

#[test]
fn the_returns_are_never_more_than_a_day_apart() {
    let mut ladder = Ladder::new();
    let mut now = at(SECOND);
    for _ in 0..40 {
        refuse_three(&mut ladder, now, BURST);
        now = now.plus(24 * 60 * MINUTES);
        assert!(ladder.accept(now));
        assert_eq!(ladder.rung(), Rung::Proven);
        now = now.plus(SECOND);
    }
}

#[test]
fn each_rung_has_its_own_rules_and_rate() {
    let rules = Rules::window();
    let keeps = |rung| Ladder::on(rung).keeps(fifty(), rules);
    assert_eq!(keeps(Rung::Proven), (fifty(), rules));
    let small = rules.counter().bucket(Burst::Of(5));
    assert_eq!(keeps(Rung::Strict), (fifty(), small));
    let one_by_one = rules.counter().bucket(Burst::Of(0));
    assert_eq!(keeps(Rung::Serial), (fifty(), one_by_one));
    let slowed = (1..=SLOWEST).map(|times| keeps(Rung::Slowed(times)).0.requests().get());
    let slowed: Vec<u32> = slowed.collect();
    assert_eq!(slowed[..4], [40, 32, 25, 20]);
    assert_eq!(slowed.last(), Some(&1));
}

#[test]
fn configured_smaller_burst_is_kept_on_a_stricter_rung() {
    let rules = Rules::window().bucket(Burst::Of(3));
    let (_, kept) = Ladder::on(Rung::Strict).keeps(fifty(), rules);
    assert_eq!(kept.bucket, Some(Burst::Of(3)));
}

#[test]
fn third_refusal_after_fifty_responses_still_steps_down() {
    let mut ladder = Ladder::new();
    assert!(!refuse(&mut ladder, at(SECOND), BURST));
    accept(&mut ladder, at(SECOND), 50);
    assert!(!refuse(&mut ladder, at(SECOND), BURST));
    assert!(refuse(&mut ladder, at(SECOND), BURST));
}

#[test]
fn the_smallest_crowd_among_the_recent_refusals_decides() {
    let alone = Crowd {
        bunched: 1,
        live: 1,
    };
    for (accepted, expected) in [(50, Rung::Serial), (100, Rung::Strict)] {
        let mut ladder = Ladder::new();
        refuse(&mut ladder, at(SECOND), alone);
        accept(&mut ladder, at(SECOND), accepted);
        let changed = (0..3).any(|_| refuse(&mut ladder, at(SECOND), BURST));
        assert_eq!((changed, ladder.rung()), (true, expected));
    }
}
