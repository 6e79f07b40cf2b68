#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]

use std::{collections::BinaryHeap, num::NonZeroU32};

use super::*;
use crate::Quota;

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a count is not zero")
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn in_flight_is_bounded_whatever_the_quota_allows() {
    let now = Instant::now();
    let mut requests = Requests::new(&Limits::default().in_flight(count(2)));
    requests.admit(now);
    requests.admit(now);
    assert_eq!(requests.earliest(now), Earliest::OnReturn);
    requests.end();
    assert_eq!(requests.earliest(now), Earliest::Now);
}

#[test]
fn of_several_quotas_the_tightest_decides() {
    let start = Instant::now();
    let limits = Limits::new(Quota::per_second(count(2))).also(Quota::per_minute(count(3)));
    let mut requests = Requests::new(&limits);
    for _ in 0..2 {
        assert_eq!(requests.earliest(start), Earliest::Now);
        requests.admit(start);
        requests.prove(start);
        requests.end();
    }
    let second = start + ms(1_002);
    assert_eq!(requests.earliest(start), Earliest::At(second));
    requests.admit(second);
    requests.prove(second);
    let minute = start + Duration::from_micros(60_031_500);
    assert_eq!(requests.earliest(second), Earliest::At(minute));
}

#[test]
fn a_lost_request_stays_counted_for_as_long_as_it_may_be() {
    let start = Instant::now();
    let limits = Limits::new(Quota::per_second(count(1))).lost_after(ms(4_000));
    let mut requests = Requests::new(&limits);
    requests.admit(start);
    requests.lose(start + ms(100));
    requests.end();
    assert_eq!(requests.in_flight(), 0);
    let back = start + ms(100 + 4_000 + 1_002);
    assert_eq!(requests.earliest(start + ms(200)), Earliest::At(back));
    assert_eq!(requests.earliest(back - ms(1)), Earliest::At(back));
    assert_eq!(requests.earliest(back), Earliest::Now);
}

#[test]
fn the_head_is_no_proof_where_the_end_is_asked_for() {
    let start = Instant::now();
    let limits = Limits::new(Quota::per_second(count(1))).proof(Proof::End);
    let mut requests = Requests::new(&limits);
    requests.admit(start);
    assert_eq!(requests.answer(start), Answered::Unproven);
    assert_eq!(requests.earliest(start), Earliest::OnReturn);
    requests.prove(start + ms(500));
    requests.end();
    assert_eq!(
        requests.earliest(start + ms(500)),
        Earliest::At(start + ms(1_502))
    );
}

/// How long a request takes to be counted, and its answer to come back after that.
type Delays = fn(&mut fastrand::Rng, Duration) -> (Duration, Duration);

/// Always backlogged, `n` requests; gives when each was counted, and when the last was sent.
fn counted_by_a_server(n: u32, seed: u64, delays: Delays) -> (Vec<Duration>, Duration) {
    let start = Instant::now();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut requests = Requests::new(&Limits::default().in_flight(count(500)));
    let mut answers: BinaryHeap<std::cmp::Reverse<Duration>> = BinaryHeap::new();
    let mut counted = Vec::new();
    let mut now = Duration::ZERO;
    for _ in 0..n {
        loop {
            while let Some(std::cmp::Reverse(answer)) = answers.peek().copied() {
                if answer > now {
                    break;
                }
                answers.pop();
                requests.prove(start + answer);
                requests.end();
            }
            let next_answer = answers.peek().map(|answer| answer.0);
            now = match requests.earliest(start + now) {
                Earliest::Now => break,
                Earliest::At(at) => next_answer.map_or(at - start, |a| a.min(at - start)),
                Earliest::OnReturn => next_answer.expect("someone holds the permits"),
            };
        }
        requests.admit(start + now);
        let (there, back) = delays(&mut rng, now);
        counted.push(now + there);
        answers.push(std::cmp::Reverse(now + there + back));
    }
    (counted, now)
}

/// The largest number of counts in any half-open interval of a second, by looking at all of
/// them. An independent model: it knows nothing of permits.
fn largest_second(mut counted: Vec<Duration>) -> usize {
    counted.sort_unstable();
    (0..counted.len())
        .map(|first| {
            let end = counted[first] + Duration::from_secs(1);
            counted[first..].partition_point(|at| *at < end)
        })
        .max()
        .unwrap_or_default()
}

fn calm(_: &mut fastrand::Rng, _: Duration) -> (Duration, Duration) {
    (Duration::ZERO, Duration::ZERO)
}

fn uniform(rng: &mut fastrand::Rng, _: Duration) -> (Duration, Duration) {
    (ms(rng.u64(0..50)), ms(rng.u64(0..50)))
}

fn heavy_tail(rng: &mut fastrand::Rng, _: Duration) -> (Duration, Duration) {
    let pareto = |rng: &mut fastrand::Rng| {
        Duration::from_secs_f64((0.005 / rng.f64().max(1e-6).powf(0.7)).min(30.0))
    };
    (pareto(rng), pareto(rng))
}

/// Everything sent during a stall of up to 3 s arrives together at its end.
fn stalls(_: &mut fastrand::Rng, now: Duration) -> (Duration, Duration) {
    let phase = Duration::from_nanos(
        u64::try_from(now.as_nanos() % 8_000_000_000).expect("a remainder of 8 s fits"),
    );
    let there = ms(8_000).saturating_sub(phase);
    if there < ms(3_000) {
        (there, ms(10))
    } else {
        (ms(10), ms(10))
    }
}

#[test]
fn no_second_at_the_server_holds_more_than_the_quota_under_any_delays() {
    let cases: [(&str, Delays); 4] = [
        ("calm", calm),
        ("uniform", uniform),
        ("heavy tail", heavy_tail),
        ("stalls", stalls),
    ];
    for (name, delays) in cases {
        for seed in 1..=3 {
            let (counted, _) = counted_by_a_server(20_000, seed, delays);
            let largest = largest_second(counted);
            assert!(largest <= 50, "{name}, seed {seed}: {largest} in a second");
            assert!(largest >= 45, "{name}: the quota is there to be used");
        }
    }
}

#[test]
fn throughput_is_the_bound_for_safe_clients() {
    // 50 / (W + E[L]) with W = 1.002 s and L = 80 ms, always backlogged.
    let (counted, last) = counted_by_a_server(20_000, 1, |_, _| (ms(40), ms(40)));
    let rate = f64::from(u32::try_from(counted.len()).expect("20,000")) / last.as_secs_f64();
    let bound = 50.0 / (1.002 + 0.080);
    assert!((rate / bound - 1.0).abs() < 0.01, "{rate} against {bound}");
}
