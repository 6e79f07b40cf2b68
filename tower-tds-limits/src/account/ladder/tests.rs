mod properties;

use super::*;

const SECOND: u64 = 1_000_000_000;

const MINUTES: u64 = 60 * SECOND;

fn at(nanos: u64) -> Tick {
    Tick::ZERO.plus(nanos)
}

/// Three refusals at once; gives the rung that the third led to.
fn refuse(ladder: &mut Ladder, now: Tick) -> Option<Rung> {
    assert_eq!(ladder.refuse(now, now), None);
    assert_eq!(ladder.refuse(now, now), None);
    ladder.refuse(now, now)
}

#[test]
fn three_refusals_lead_one_rung_down_and_each_means_a_second_of_silence() {
    let mut ladder = Ladder::new(Rung::Proven);
    let now = at(5 * SECOND);
    assert_eq!(ladder.refuse(now, now), None);
    assert_eq!(ladder.silent_until(), now.plus(SILENCE));
    let now = now.plus(3 * SECOND);
    assert_eq!(ladder.refuse(now, now), None);
    assert_eq!(ladder.silent_until(), now.plus(SILENCE));
    assert_eq!(ladder.refuse(now, now), Some(Rung::Strict));
    for (step, rung) in [Rung::Serial, Rung::Slowed(1), Rung::Slowed(2)]
        .into_iter()
        .enumerate()
    {
        let step = u64::try_from(step).expect("few steps");
        let now = now.plus((step + 1) * 2 * SECOND);
        assert_eq!(refuse(&mut ladder, now), Some(rung));
    }
}

#[test]
fn refusals_that_are_rare_among_the_accepted_lead_nowhere() {
    let mut ladder = Ladder::new(Rung::Proven);
    for n in 1..1_000 {
        let now = at(n * 30 * SECOND);
        assert_eq!(ladder.refuse(now, now), None);
        for _ in 0..100 {
            assert_eq!(ladder.accept(now), None);
        }
    }
}

#[test]
fn a_service_that_refuses_one_in_forty_is_found_by_four() {
    let mut ladder = Ladder::new(Rung::Proven);
    let mut refused = 0;
    let found = (1..100).find_map(|n| {
        let now = at(n * 2 * SECOND);
        for _ in 0..40 {
            ladder.accept(now);
        }
        refused += 1;
        ladder.refuse(now, now)
    });
    assert_eq!((found, refused), (Some(Rung::Strict), 4));
}

#[test]
fn refusals_of_those_already_in_flight_count_as_one_step_and_prolong_the_silence() {
    let mut ladder = Ladder::new(Rung::Proven);
    let before = at(1);
    assert_eq!(refuse(&mut ladder, at(SECOND)), Some(Rung::Strict));
    for late in 1..=40 {
        let now = at(SECOND + late * 20_000_000);
        assert_eq!(ladder.refuse(now, before), None);
        assert_eq!(ladder.silent_until(), now.plus(SILENCE));
    }
    assert_eq!(ladder.rung(), Rung::Strict);
}

#[test]
fn ten_clean_minutes_lead_one_rung_up_and_a_failed_try_doubles_them() {
    let mut ladder = Ladder::new(Rung::Proven);
    let mut now = at(SECOND);
    refuse(&mut ladder, now);
    for minutes in [10, 20, 40, 80] {
        let early = now.plus(minutes * MINUTES - 1);
        assert_eq!(ladder.accept(early), None, "{minutes}");
        now = now.plus(minutes * MINUTES);
        assert_eq!(ladder.accept(now), Some(Rung::Proven), "{minutes}");
        now = now.plus(SECOND);
        assert_eq!(refuse(&mut ladder, now), Some(Rung::Strict));
    }
    // Down once more without a try in between: ten minutes again.
    now = now.plus(SECOND);
    assert_eq!(refuse(&mut ladder, now), Some(Rung::Serial));
    assert_eq!(ladder.accept(now.plus(10 * MINUTES)), Some(Rung::Strict));
}

/// A stranger behind the address who sends more than the rate for a minute, say.
#[test]
fn a_storm_of_refusals_is_over_after_half_an_hour() {
    let mut ladder = Ladder::new(Rung::Proven);
    let mut now = at(SECOND);
    while ladder.rung() != Rung::Slowed(SLOWEST) {
        now = now.plus(SECOND);
        refuse(&mut ladder, now);
    }
    let storm = now;
    while ladder.rung() != Rung::Proven {
        now = now.plus(SECOND);
        ladder.accept(now);
    }
    let minutes = now.since(storm) / MINUTES;
    assert!((30..35).contains(&minutes), "{minutes}");
    // What comes soon is a try that failed, and what comes later is another storm.
    let soon = now.plus(9 * MINUTES);
    let later = now.plus(10 * MINUTES);
    for (at, minutes) in [(soon, 20), (later, 10)] {
        let mut ladder = Ladder { ..ladder };
        ladder.accept(at);
        refuse(&mut ladder, at);
        assert_eq!(ladder.accept(at.plus(minutes * MINUTES - 1)), None);
        assert!(ladder.accept(at.plus(minutes * MINUTES)).is_some());
    }
}

#[test]
fn a_rare_refusal_puts_off_no_climb() {
    let mut ladder = Ladder::new(Rung::Proven);
    let now = at(SECOND);
    refuse(&mut ladder, now);
    let later = now.plus(9 * MINUTES);
    assert_eq!(ladder.refuse(later, later), None);
    assert_eq!(ladder.accept(now.plus(10 * MINUTES)), Some(Rung::Proven));
}

#[test]
fn the_tries_are_never_more_than_a_day_apart() {
    let mut ladder = Ladder::new(Rung::Proven);
    let mut now = at(SECOND);
    for _ in 0..40 {
        refuse(&mut ladder, now);
        now = now.plus(24 * 60 * MINUTES);
        assert_eq!(ladder.accept(now), Some(Rung::Proven));
    }
}

#[test]
fn the_highest_rung_leads_nowhere() {
    let mut ladder = Ladder::new(Rung::Proven);
    assert_eq!(ladder.accept(at(100_000 * MINUTES)), None);
    let mut careful = Ladder::new(Rung::Strict);
    assert_eq!(careful.accept(at(10 * MINUTES)), Some(Rung::Proven));
    assert_eq!(careful.accept(at(100_000 * MINUTES)), None);
}

#[test]
fn each_rung_keeps_within_what_the_one_above_does() {
    let quota = Quota::per_second(NonZeroU32::new(50).expect("50 is not zero"));
    let mut ladder = Ladder::new(Rung::Proven);
    let rules = Rules::window();
    assert_eq!(ladder.keeps(quota, rules), (quota, rules));
    refuse(&mut ladder, at(1));
    let ten = rules.counter().bucket(Burst::Of(10));
    assert_eq!(ladder.keeps(quota, rules), (quota, ten));
    refuse(&mut ladder, at(2));
    let one_by_one = rules.counter().bucket(Burst::Of(0));
    assert_eq!(ladder.keeps(quota, rules), (quota, one_by_one));
    let mut requests = Vec::new();
    for later in 3..31 {
        refuse(&mut ladder, at(later));
        requests.push(ladder.keeps(quota, rules).0.requests().get());
    }
    assert_eq!(requests[..4], [40, 32, 25, 20]);
    assert_eq!(requests.last(), Some(&1));
}

#[test]
fn a_burst_that_was_chosen_smaller_stays_smaller() {
    let rules = Rules::window().bucket(Burst::Of(3));
    assert_eq!(strict(rules).bucket, Some(Burst::Of(3)));
}
