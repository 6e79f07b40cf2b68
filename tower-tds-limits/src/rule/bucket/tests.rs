use std::num::NonZeroU32;

use super::*;

fn bucket(burst: Burst) -> Bucket {
    Bucket::new(
        Quota::per_second(NonZeroU32::new(50).expect("50 is not zero")),
        burst,
    )
}

/// A fiftieth of 1.002 s.
const SPACING: Duration = Duration::from_micros(20_040);

#[test]
fn a_burst_and_one_pass_and_the_rest_wait_for_proofs() {
    let now = Instant::now();
    let mut bucket = bucket(Burst::Of(10));
    for _ in 0..11 {
        assert_eq!(bucket.earliest_at(now), Earliest::Now);
        bucket.grant();
    }
    assert_eq!(bucket.earliest_at(now), Earliest::OnReturn);
}

#[test]
fn proven_requests_drain_one_by_one() {
    let now = Instant::now();
    let mut bucket = bucket(Burst::Of(10));
    for _ in 0..11 {
        bucket.grant();
        bucket.prove_at(now);
    }
    assert_eq!(bucket.earliest_at(now), Earliest::At(now + SPACING));
    assert_eq!(bucket.earliest_at(now + SPACING), Earliest::Now);
    bucket.grant();
    assert_eq!(
        bucket.earliest_at(now + SPACING),
        Earliest::At(now + SPACING * 2)
    );
}

#[test]
fn without_a_burst_there_is_one_request_at_a_time() {
    let now = Instant::now();
    let mut bucket = bucket(Burst::Of(0));
    bucket.grant();
    assert_eq!(bucket.earliest_at(now), Earliest::OnReturn);
    let proof = now + Duration::from_millis(300);
    bucket.prove_at(proof);
    assert_eq!(bucket.earliest_at(proof), Earliest::At(proof + SPACING));
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
    let now = Instant::now();
    let mut bucket = bucket(Burst::Auto);
    assert_eq!(bucket.burst(), 10);
    let prove = |bucket: &mut Bucket, took: Duration| {
        bucket.grant();
        bucket.prove_at(now + took);
        bucket.learn(took);
    };
    for _ in 0..500 {
        prove(&mut bucket, Duration::from_millis(400));
    }
    assert_eq!(bucket.burst(), 24, "400 ms are 19 spacings, and 5 more");
    for _ in 0..500 {
        prove(&mut bucket, Duration::from_millis(50));
    }
    assert_eq!(bucket.burst(), 10);
}
