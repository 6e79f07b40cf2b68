mod properties;

use std::{num::NonZeroU32, time::Duration};

use super::*;

fn bucket(burst: Burst) -> Bucket {
    Bucket::new(
        Quota::per_second(NonZeroU32::new(50).expect("50 is not zero")),
        burst,
    )
}

fn open(bucket: &Bucket, now: Tick) -> bool {
    bucket.opens_at(now, 0) <= now
}

/// Grants as many as may go at `now`.
fn fill(bucket: &mut Bucket, now: Tick) -> usize {
    fill_to(bucket, now, 100)
}

fn fill_to(bucket: &mut Bucket, now: Tick, most: usize) -> usize {
    (0..most)
        .take_while(|_| {
            let open = open(bucket, now);
            if open {
                bucket.grant(now);
            }
            open
        })
        .count()
}

fn answer(bucket: &mut Bucket, now: Tick, granted: Tick) {
    bucket.prove(now, granted);
    bucket.take_evidence(now, granted);
}

/// A fiftieth of 1.002 s.
const SPACING: Duration = Duration::from_micros(20_040);

/// A gateway that takes no burst keeps its time in milliseconds.
const TICK: Duration = Duration::from_millis(1);

const START: Tick = Tick::ZERO.plus(5_000_000_000);

#[test]
fn without_a_burst_there_is_one_request_at_a_time() {
    let now = START;
    let mut bucket = bucket(Burst::Of(0));
    bucket.grant(now);
    assert_eq!(bucket.opens_at(now, 0), Tick::NEVER);
    let proof = now + Duration::from_millis(300);
    bucket.prove(proof, now);
    assert_eq!(bucket.opens_at(now, 0), proof + SPACING + TICK);
}

#[test]
fn a_burst_is_never_more_than_the_quota() {
    assert_eq!(fill(&mut bucket(Burst::Of(1_000)), START), 50);
    let five = NonZeroU32::new(5).expect("5 is not zero");
    let five = Quota::new(five, Duration::from_secs(60)).expect("a minute");
    let mut minute = Bucket::new(five, Burst::Auto);
    assert_eq!(fill(&mut minute, START), 5);
    let mut kept = bucket(Burst::Of(10));
    kept.keep(five, Burst::Of(10), None, u64::MAX, START);
    assert_eq!(fill(&mut kept, START), 5);
}

#[test]
fn a_bucket_of_unknown_level_holds_the_whole_quota() {
    let fifty = Quota::per_second(NonZeroU32::new(50).expect("50 is not zero"));
    let bucket = Bucket::filled(fifty, Burst::Of(10), START);
    assert_eq!(bucket.held(START), (1, 50));
    assert_eq!(bucket.opens_at(START, 0), START + SPACING * 40);
}

#[test]
fn bucket_level_survives_a_change_of_quota() {
    let mut bucket = bucket(Burst::Of(10));
    for _ in 0..10 {
        bucket.grant(START);
        bucket.prove(START, START);
    }
    let ten = Quota::per_second(NonZeroU32::new(10).expect("10 is not zero"));
    bucket.keep(ten, Burst::Of(4), None, u64::MAX, START);
    assert_eq!(bucket.held(START), (1, 10));
    // Ten have fallen and six must drain, at ten a second.
    let drained = START + Duration::from_micros(100_200) * 6;
    assert_eq!(bucket.opens_at(START, 0), drained);
}

#[test]
fn response_is_evidence_for_grants_older_than_the_margin() {
    let mut bucket = bucket(Burst::Auto);
    let margin = Duration::from_millis(150);
    assert_eq!(fill(&mut bucket, START), 10);
    let early = START + Duration::from_millis(60);
    answer(&mut bucket, early, START);
    // Granted too late for that answer.
    assert_eq!(fill(&mut bucket, early + SPACING), 1);
    answer(&mut bucket, START + margin, START);
    // Ten have fallen by then, two of them proven, and the last one is unseen.
    assert_eq!(bucket.unseen.len(), 1);
    assert_eq!(fill(&mut bucket, START + margin), 0);
    assert_eq!(fill(&mut bucket, START + margin + SPACING * 5), 5);
    // The proofs of what has fallen change nothing.
    let opens = bucket.opens_at(START + margin * 2, 0);
    for _ in 0..8 {
        bucket.prove(START + margin * 2, START);
    }
    assert_eq!(bucket.opens_at(START + margin * 2, 0), opens);
    assert_eq!(bucket.unseen.len(), 6);
}

#[test]
fn probes_start_after_a_second_and_later_double() {
    let probed = |ms: u64| probed(ms * 1_000_000);
    for (age, number, more_at) in [
        (999, 0, 1_000),
        (1_000, 1, 3_500),
        (3_499, 1, 3_500),
        (3_500, 2, 4_000),
        (4_000, 4, 4_500),
        (4_499, 4, 4_500),
        (100_000, 1 << MOST_DOUBLINGS, 100_500),
    ] {
        assert_eq!(probed(age), (number, more_at * 1_000_000), "{age}");
    }
}

/// Reproducer for L1: an idle time does not count as age of the requests that follow it.
#[test]
fn eleven_requests_without_response_are_sent_in_three_seconds() {
    for light in [0_u64, 20, 300] {
        for idle in [50, 300, 1_000, 5_000, 60_000] {
            let mut bucket = bucket(Burst::Auto);
            let mut now = START;
            for _ in 0..8 {
                assert!(fill(&mut bucket, now) > 0);
                now = now + Duration::from_millis(light);
                while let Some(unseen) = bucket.unseen.front().copied() {
                    answer(&mut bucket, now, unseen);
                }
                now = now + Duration::from_millis(100);
            }
            now = now + Duration::from_millis(idle.max(200));
            assert_eq!(fill(&mut bucket, now), 10);
            let mut probes = 0;
            for _ in 0..300 {
                let due = bucket.opens_at(now, 0);
                assert!(due > now, "a due time lies in the future");
                now = now + Duration::from_millis(10);
                probes += fill(&mut bucket, now);
            }
            assert_eq!(probes, 1, "{light} {idle}");
            // Probes distinguish a few slow calls from a stall.
            for _ in 0..600 {
                now = now + Duration::from_millis(10);
                probes += fill(&mut bucket, now);
            }
            assert!(probes > 20, "{light} {idle}: {probes}");
        }
    }
}

#[test]
fn an_automatic_burst_holds_the_requests_of_180_ms_and_nine_at_least() {
    let ms = Duration::from_millis;
    for (requests, per, at_once) in [
        (5, ms(1_000), 5),
        (12, ms(1_000), 10),
        (50, ms(1_000), 10),
        (56, ms(1_000), 11),
        (1_000, ms(1_000), 181),
        (50, ms(250), 37),
    ] {
        let requests = NonZeroU32::new(requests).expect("a quota is not zero");
        let quota = Quota::new(requests, per).expect("an interval");
        let mut bucket = Bucket::new(quota, Burst::Auto);
        assert_eq!(fill_to(&mut bucket, START, 1_000), at_once, "{quota:?}");
    }
}

#[test]
fn places_bound_an_automatic_burst_and_its_probes() {
    let fifty = Quota::per_second(NonZeroU32::new(50).expect("50 is not zero"));
    for (places, at_once, later) in [(11, 10, 1), (10, 10, 0), (3, 3, 0), (1, 1, 0)] {
        let mut bucket = bucket(Burst::Auto);
        bucket.keep(fifty, Burst::Auto, None, places, START);
        assert_eq!(fill(&mut bucket, START), at_once);
        assert_eq!(bucket.held(START).1, u64::try_from(at_once).expect("few"));
        // However long no response comes, only this many more are granted.
        assert_eq!(fill(&mut bucket, START + Duration::from_secs(60)), later);
    }
}

#[test]
fn requests_with_evidence_hold_no_places_of_an_automatic_burst() {
    let mut bucket = bucket(Burst::Auto);
    assert_eq!(fill(&mut bucket, START), 10);
    let quick = START + Duration::from_millis(150);
    answer(&mut bucket, quick, START);
    // All ten have fallen, and none has drained.
    assert_eq!(bucket.held(quick), (1, 10));
    assert_eq!(bucket.held(quick + SPACING * 10), (0, 0));
}
