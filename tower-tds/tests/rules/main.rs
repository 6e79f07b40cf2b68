//! The limits against every way of counting that the simulated service knows, and against models
//! of the same that share nothing with it, under paused time: always backlogged, with delays
//! before the count and after it. Nothing may be refused.
//!
//! By default 2,000 calls for each pair of a way of counting and a network. The whole matrix is a
//! million for each:
//! `RULES_CALLS=1000000 cargo test --release -p tower-tds --test rules`

#![expect(
    clippy::expect_used,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a surprise in a test is a failed test, and so should an overflow be"
)]

use tds_sim::Rule;
use tower_tds::{Limits, Proof, layers::limits::Rules};

mod models;
mod network;
mod run;

use self::{
    network::Network,
    run::{Seen, run},
};

/// What is added to each way. The answers take no longer than half of the answers to 100 ms, so
/// that the default keeps to buckets of ten.
const JITTERS: [&str; 7] = [
    "none",
    "uniform:0ms:50ms",
    "lognormal:10ms:200ms",
    "stall:5s:300ms",
    "stall:60s:3s",
    "pareto:5ms:1.5",
    "reordering",
];

/// The calls of a run, if they are not a matter of precision.
fn calls() -> u32 {
    std::env::var("RULES_CALLS").map_or(2_000, |calls| {
        calls.parse().expect("RULES_CALLS is a number of calls")
    })
}

/// A run against one way of counting through each network; none may be refused.
async fn accepted(rule: Rule, limits: Limits) -> Vec<Seen> {
    let mut all = Vec::new();
    for jitter in JITTERS {
        let network = Network::new("0ms", jitter, "lognormal:20ms:100ms");
        let seen = run(rule, network, limits.clone(), calls()).await;
        let what = format!("{rule:?} under {jitter}: {seen:?}");
        assert_eq!(seen.refused, 0, "{what}");
        assert_eq!(seen.accepted, u64::from(calls()), "{what}");
        assert!(seen.largest.second <= 50, "{what}");
        assert!(seen.largest.estimate <= 50.0, "{what}");
        assert!(seen.largest.level <= 10.0, "{what}");
        all.push(seen);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn fixed_windows_refuse_nothing() {
    accepted(Rule::FixedWindow, Limits::default()).await;
}

#[tokio::test(start_paused = true)]
async fn sliding_logs_refuse_nothing() {
    accepted(Rule::SlidingLog, Limits::default()).await;
}

#[tokio::test(start_paused = true)]
async fn sliding_logs_of_the_refused_too_refuse_nothing() {
    accepted(Rule::SlidingLogAll, Limits::default()).await;
}

#[tokio::test(start_paused = true)]
async fn weighing_counters_refuse_nothing() {
    accepted(Rule::SlidingCounter, Limits::default()).await;
}

#[tokio::test(start_paused = true)]
async fn buckets_of_49_refuse_nothing() {
    accepted(Rule::LeakyBucket { burst: 49 }, Limits::default()).await;
}

#[tokio::test(start_paused = true)]
async fn buckets_of_10_refuse_nothing() {
    accepted(Rule::LeakyBucket { burst: 10 }, Limits::default()).await;
}

#[tokio::test(start_paused = true)]
async fn counts_of_requests_in_flight_refuse_nothing_where_the_end_is_the_proof() {
    for seen in accepted(Rule::InFlight, Limits::default().proof(Proof::End)).await {
        assert!(seen.largest.in_flight <= 50, "{seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_window_alone_is_refused_where_it_promises_nothing() {
    // Or the tests above could not fail.
    let limits = Limits::default().rules(Rules::window());
    let network = || Network::new("0ms", "none", "none");
    let counter = run(Rule::SlidingCounter, network(), limits.clone(), 2_000).await;
    assert!(counter.refused > 0, "{counter:?}");
    assert!(counter.largest.estimate > 50.0, "{counter:?}");
    let bucket = Rule::LeakyBucket { burst: 10 };
    let bucket = run(bucket, network(), limits, 2_000).await;
    assert!(bucket.refused > 0, "{bucket:?}");
    assert!(bucket.largest.level > 10.0, "{bucket:?}");
}

/// The study's network: 10 ms each way and jitter, answers after 80 ms (lognormal, sigma 0.5).
/// What a safe client can have of 50 a second, by the window and by the default.
const BOUNDS: [(&str, f64, f64); 5] = [
    ("none", 0.898, 0.849),
    ("uniform:0ms:5ms", 0.894, 0.846),
    ("uniform:0ms:50ms", 0.860, 0.813),
    ("lognormal:10ms:200ms", 0.863, 0.813),
    ("stall:5s:300ms", 0.888, 0.816),
];

#[tokio::test(start_paused = true)]
async fn throughput_is_within_a_hundredth_of_what_a_safe_client_can_have() {
    for (jitter, window, default) in BOUNDS {
        for (rules, bound) in [(Rules::window(), window), (Rules::default(), default)] {
            let network = Network::new("10ms", jitter, "lognormal:80ms:256ms");
            let limits = Limits::default().rules(rules);
            let seen = run(Rule::SlidingLog, network, limits, calls().max(20_000)).await;
            let share = seen.rate / 50.0;
            assert!(
                (share - bound).abs() < 0.01,
                "{jitter}: {share} of {bound}, {rules:?}"
            );
        }
    }
}
