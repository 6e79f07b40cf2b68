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
    bucket.opens_at().is_some_and(|at| at <= now)
}

/// A fiftieth of 1.002 s.
const SPACING: Duration = Duration::from_micros(20_040);

/// A gateway that takes no burst keeps its time in milliseconds.
const TICK: Duration = Duration::from_millis(1);

const START: Tick = Tick::ZERO.plus(5_000_000_000);

#[test]
fn a_burst_and_one_pass_and_the_rest_wait_for_proofs() {
    let now = START;
    let mut bucket = bucket(Burst::Of(10));
    for _ in 0..11 {
        assert!(open(&bucket, now));
        bucket.grant();
    }
    assert_eq!(bucket.opens_at(), None);
}

#[test]
fn proven_requests_drain_one_by_one() {
    let now = START;
    let mut bucket = bucket(Burst::Of(10));
    for _ in 0..11 {
        bucket.grant();
        bucket.prove(now, START);
    }
    assert_eq!(bucket.opens_at(), Some(now + SPACING));
    assert!(open(&bucket, now + SPACING));
    bucket.grant();
    assert_eq!(bucket.opens_at(), Some(now + SPACING * 2));
}

#[test]
fn without_a_burst_there_is_one_request_at_a_time() {
    let now = START;
    let mut bucket = bucket(Burst::Of(0));
    bucket.grant();
    assert_eq!(bucket.opens_at(), None);
    let proof = now + Duration::from_millis(300);
    bucket.prove(proof, START);
    assert_eq!(bucket.opens_at(), Some(proof + SPACING + TICK));
}

#[test]
fn a_burst_is_never_more_than_the_quota() {
    assert_eq!(bucket(Burst::Of(1_000)).burst(), 49);
    let five = NonZeroU32::new(5).expect("5 is not zero");
    let bucket = Bucket::new(Quota::per_minute(five), Burst::Auto);
    assert_eq!(bucket.burst(), 4);
}

#[test]
fn the_automatic_burst_follows_the_usual_time_to_the_proof() {
    let now = START;
    let mut bucket = bucket(Burst::Auto);
    assert_eq!(bucket.burst(), 9);
    let prove = |bucket: &mut Bucket, took: Duration| {
        bucket.grant();
        bucket.prove(now + took, START);
        bucket.learn(nanos(took));
    };
    for _ in 0..500 {
        prove(&mut bucket, Duration::from_millis(400));
    }
    assert_eq!(bucket.burst(), 24, "400 ms are 19 spacings, and 5 more");
    for _ in 0..500 {
        prove(&mut bucket, Duration::from_millis(50));
    }
    assert_eq!(bucket.burst(), 9);
}

#[test]
fn a_careful_beginning_allows_larger_bursts_as_answers_come() {
    let mut bucket = bucket(Burst::Auto);
    // Three are in flight and say nothing about what comes after.
    for _ in 0..3 {
        bucket.grant();
    }
    bucket.begin_carefully();
    let mut bursts = Vec::new();
    for proofs in 0..45 {
        if (proofs + 7) % 10 == 0 || proofs == 0 {
            bursts.push(bucket.burst());
        }
        bucket.grant();
        bucket.prove(START, START);
    }
    assert_eq!(bursts, [0, 0, 1, 2, 9, 9]);
    bucket.learn(nanos(Duration::from_secs(3)));
    for _ in 0..500 {
        bucket.learn(nanos(Duration::from_secs(3)));
    }
    assert_eq!(bucket.burst(), 49, "and then as large as it is");
}

#[test]
fn what_is_unproven_for_long_leaves_an_automatic_burst_and_no_other() {
    let second = Duration::from_secs(1);
    for (burst, leaves) in [(Burst::Auto, true), (Burst::Of(9), false)] {
        let mut bucket = bucket(burst);
        bucket.see(START);
        for _ in 0..10 {
            bucket.grant();
        }
        let mut now = START;
        while now < START + Duration::from_millis(900) {
            now = now + Duration::from_millis(10);
            bucket.see(now);
            assert_eq!(bucket.opens_at(), None, "a stall is no long time");
        }
        let until = |bucket: &mut Bucket, now: &mut Tick, until: Tick| {
            while *now < until {
                *now = *now + Duration::from_millis(10);
                bucket.see(*now);
            }
        };
        until(&mut bucket, &mut now, START + second * 5 / 4);
        // Nothing is answered: one more may find out whether anything is.
        assert_eq!(bucket.opens_at().is_some(), leaves);
        if leaves {
            let sent = now;
            bucket.grant();
            until(&mut bucket, &mut now, START + second * 7 / 2);
            assert_eq!(bucket.opens_at(), None, "a network that stands still");
            bucket.prove(now, sent);
            bucket.answered(sent);
            assert!(
                bucket.opens_at().is_some(),
                "and then it is found out again"
            );
            let sent = now;
            bucket.grant();
            until(&mut bucket, &mut now, START + second * 37 / 10);
            bucket.prove(now, sent);
            bucket.answered(sent);
            until(&mut bucket, &mut now, START + second * 9 / 2);
            assert_eq!(bucket.young.old, 10);
            assert!(bucket.opens_at().is_some());
        }
        // Its proofs come all the same, and are of the old.
        for _ in 0..10 {
            bucket.prove(now, START);
        }
        assert_eq!(bucket.unproven, 0);
        assert_eq!(bucket.young.old, 0);
    }
}

#[test]
fn what_is_usually_slow_is_not_long() {
    let mut bucket = bucket(Burst::Auto);
    for _ in 0..2_000 {
        bucket.learn(nanos(Duration::from_secs(2)));
    }
    bucket.answered(START + Duration::from_secs(60));
    bucket.see(START);
    for _ in 0..50 {
        bucket.grant();
    }
    let mut now = START;
    while now < START + Duration::from_secs(15) {
        now = now + Duration::from_millis(50);
        bucket.see(now);
        assert_eq!(bucket.opens_at(), None);
    }
}

#[test]
fn grants_that_are_withdrawn_leave_the_generations_as_many_as_are_unproven() {
    let mut bucket = bucket(Burst::Auto);
    let mut now = START;
    let mut rng = fastrand::Rng::with_seed(11);
    let mut under_way = Vec::new();
    for _ in 0..20_000 {
        now = now.plus(rng.u64(0..60_000_000));
        bucket.see(now);
        match rng.u32(0..4) {
            0 | 1 => {
                bucket.grant();
                under_way.push(now);
            }
            2 if !under_way.is_empty() => {
                let granted = under_way.swap_remove(rng.usize(..under_way.len()));
                bucket.prove(now, granted);
                bucket.answered(granted);
            }
            3 if under_way.len() > 1 => {
                // Two are lost, and both are taken for the older one's.
                let first = under_way.remove(0);
                under_way.remove(0);
                bucket.withdraw(first);
                bucket.withdraw(first);
            }
            _ => {}
        }
        let young: u64 = bucket
            .young
            .generations
            .iter()
            .map(|(_, count)| count)
            .sum();
        assert_eq!(young + bucket.young.old, bucket.unproven);
        assert_eq!(
            bucket.unproven,
            u64::try_from(under_way.len()).expect("few")
        );
    }
}
