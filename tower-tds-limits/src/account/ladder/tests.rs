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
        let (bursts, slowed) = match rung {
            Rung::Proven => (Bursts::Given, 0),
            Rung::Strict => (Bursts::Small, 0),
            Rung::Serial => (Bursts::None, 0),
            Rung::Slowed(times) => (Bursts::None, times),
        };
        Self {
            step: Step { bursts, slowed },
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
fn three_refusals_step_down_and_each_starts_a_silence() {
    let mut ladder = Ladder::new();
    for seconds in [5, 8, 11] {
        let now = at(seconds * SECOND);
        assert_eq!(ladder.rung(), Rung::Proven);
        refuse(&mut ladder, now, BURST);
        assert_eq!(ladder.silent_until(), now.plus(SILENCE));
    }
    assert_eq!(ladder.rung(), Rung::Strict);
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
    ] {
        let mut ladder = Ladder::new();
        assert_eq!(refuse_three(&mut ladder, at(SECOND), crowd), rung);
    }
}

/// Reproducer for L4: a locked resource beside one call a second.
#[test]
fn refusals_of_a_lone_request_keep_the_rung() {
    let mut ladder = Ladder::new();
    for minute in 1..500 {
        let alone = Crowd {
            bunched: 0,
            live: 1,
        };
        assert!(!refuse(&mut ladder, at(minute * MINUTES), alone));
        accept(&mut ladder, at(minute * MINUTES), 59);
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
fn refusals_of_older_grants_only_extend_the_silence() {
    let mut ladder = Ladder::new();
    refuse_three(&mut ladder, at(SECOND), BURST);
    for late in 1..=40 {
        let now = at(SECOND + late * 20_000_000);
        assert!(!ladder.refuse(now, at(1), BURST, fifty()));
        assert_eq!(ladder.silent_until(), now.plus(SILENCE));
    }
    assert_eq!(ladder.rung(), Rung::Strict);
}

/// Reproducer for L4: refusals that are about something else come at every rung.
#[test]
fn useless_rung_is_left_and_retried_after_doubling_delays() {
    let mut ladder = Ladder::new();
    let mut now = at(SECOND);
    let alone = Crowd {
        bunched: 0,
        live: 0,
    };
    for minutes in [10, 20, 40, 80] {
        let crowd = Crowd {
            bunched: 2,
            live: 2,
        };
        assert_eq!(refuse_three(&mut ladder, now, crowd), Rung::Serial);
        now = now.plus(SECOND);
        refuse(&mut ladder, now, alone);
        assert_eq!(ladder.rung(), Rung::Serial);
        now = now.plus(SECOND);
        assert!(refuse(&mut ladder, now, alone));
        assert_eq!(ladder.rung(), Rung::Proven);
        for _ in 0..10 {
            assert!(!refuse(&mut ladder, now.plus(minutes * MINUTES - 1), crowd));
        }
        now = now.plus(minutes * MINUTES);
        accept(&mut ladder, now, 1_000);
    }
}

#[test]
fn rung_is_kept_if_few_refusals_remain() {
    for (answers, kept) in [(100, false), (2_000, true)] {
        let mut ladder = Ladder::new();
        accept(&mut ladder, at(SECOND), 50);
        assert_eq!(refuse_three(&mut ladder, at(SECOND), BURST), Rung::Strict);
        let mut now = at(2 * SECOND);
        for _ in 0..3 {
            now = now.plus(SECOND);
            accept(&mut ladder, now, answers / 3);
            let alone = Crowd {
                bunched: 0,
                live: 5,
            };
            refuse(&mut ladder, now, alone);
        }
        assert_eq!(ladder.rung() == Rung::Strict, kept, "{answers}");
    }
}

#[test]
fn serial_rung_slows_step_by_step_to_the_slowest() {
    let mut ladder = Ladder::on(Rung::Serial);
    let mut now = at(SECOND);
    let one = Crowd {
        bunched: 0,
        live: 1,
    };
    for times in 1..=SLOWEST {
        for _ in 0..6 {
            now = now.plus(SECOND);
            if refuse(&mut ladder, now, one) {
                break;
            }
        }
        assert_eq!(ladder.rung(), Rung::Slowed(times));
    }
    for _ in 0..6 {
        now = now.plus(SECOND);
        refuse(&mut ladder, now, one);
    }
    assert_eq!(ladder.rung(), Rung::Slowed(SLOWEST));
}

#[test]
fn failed_climb_doubles_the_ten_minutes_to_the_next() {
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
fn ladder_climbs_from_the_slowest_rung_within_35_minutes() {
    let mut ladder = Ladder::on(Rung::Slowed(SLOWEST));
    let storm = at(SECOND);
    ladder.go(storm, ladder.step);
    let mut now = storm;
    while ladder.rung() != Rung::Proven {
        now = now.plus(SECOND);
        ladder.accept(now);
    }
    let minutes = now.since(storm) / MINUTES;
    assert!((20..35).contains(&minutes), "{minutes}");
    // A refusal soon after is a try that failed, and a later one is another storm.
    let soon = now.plus(9 * MINUTES);
    let later = now.plus(10 * MINUTES);
    for (at, minutes) in [(soon, 20), (later, 10)] {
        let mut ladder = Ladder { ..ladder };
        ladder.accept(at);
        refuse_three(&mut ladder, at, BURST);
        assert!(!ladder.accept(at.plus(minutes * MINUTES - 1)));
        assert!(ladder.accept(at.plus(minutes * MINUTES)));
    }
}

#[test]
fn rare_refusal_does_not_delay_a_climb() {
    let mut ladder = Ladder::new();
    let now = at(SECOND);
    refuse_three(&mut ladder, now, BURST);
    assert!(!refuse(&mut ladder, now.plus(9 * MINUTES), BURST));
    assert!(ladder.accept(now.plus(10 * MINUTES)));
    assert_eq!(ladder.rung(), Rung::Proven);
}

#[test]
fn the_tries_are_never_more_than_a_day_apart() {
    let mut ladder = Ladder::new();
    let mut now = at(SECOND);
    for _ in 0..40 {
        refuse_three(&mut ladder, now, BURST);
        now = now.plus(24 * 60 * MINUTES);
        assert!(ladder.accept(now));
        assert_eq!(ladder.rung(), Rung::Proven);
    }
}

#[test]
fn ladder_does_not_climb_above_the_highest_rung() {
    let mut ladder = Ladder::new();
    assert!(!ladder.accept(at(100_000 * MINUTES)));
    let mut careful = Ladder::on(Rung::Strict);
    assert!(careful.accept(at(10 * MINUTES)));
    assert_eq!(careful.rung(), Rung::Proven);
    assert!(!careful.accept(at(100_000 * MINUTES)));
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
fn a_rate_of_refusals_is_heavy_above_one_in_eight() {
    let rate = |refused, answered| RefusalRate { refused, answered };
    let heavy = [(1, 1), (2, 15), (2, 16), (3, 23), (3, 24)];
    let heavy = heavy.map(|(refused, answered)| rate(refused, answered).is_heavy());
    assert_eq!(heavy, [false, true, false, true, false]);
    let above = rate(4, 20);
    let part = [(1, 1), (2, 40), (2, 41)];
    let part = part.map(|(refused, answered)| rate(refused, answered).is_part_of(above, 4));
    assert_eq!(part, [false, true, false]);
}

#[test]
fn partly_effective_rung_slows_further_or_is_left() {
    let above = RefusalRate {
        refused: 3,
        answered: 60,
    };
    for (bursts, slowed, expected) in [
        (Bursts::Small, 0, Rung::Proven),
        (Bursts::Given, 1, Rung::Slowed(2)),
    ] {
        let proven = Step {
            bursts: Bursts::Given,
            slowed: 0,
        };
        let mut ladder = Ladder {
            step: Step { bursts, slowed },
            above: Some((proven, above)),
            rate: RefusalRate {
                refused: 1,
                answered: 99,
            },
            ..Ladder::new()
        };
        let crowd = Crowd {
            bunched: 0,
            live: 48,
        };
        assert!(refuse(&mut ladder, at(SECOND), crowd));
        assert_eq!(ladder.rung(), expected);
    }
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

#[test]
fn small_bursts_are_chosen_if_about_half_are_bunched() {
    for (live, expected) in [(41, Rung::Strict), (42, Rung::Slowed(1))] {
        let crowd = Crowd { bunched: 20, live };
        let mut ladder = Ladder::new();
        assert_eq!(refuse_three(&mut ladder, at(SECOND), crowd), expected);
    }
}
