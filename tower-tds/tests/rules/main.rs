//! The limits against every way of counting of the simulated service, and against independent
//! models of the same. The runs are always backlogged, under paused time, with delays before and
//! after the count. No request may be refused.
//!
//! By default there are 2,000 calls for each pair of a way of counting and a network. The whole
//! matrix has a million for each pair (`.ci/matrix` runs it):
//! `RULES_CALLS=1000000 cargo test --release -p tower-tds --test rules`

#![expect(
    clippy::expect_used,
    reason = "a surprise in a test is a failed test, and so should an overflow be"
)]

use std::time::Duration;

use tds_sim::Rule;
use tower_tds::{Limits, Proof, layers::limits::Rules};

#[path = "../gateways/audit.rs"]
mod audit;
mod clocks;
mod judge;
mod network;
mod quotas;
mod random;
mod refusals;
mod throughput;
mod world;

use self::{
    judge::Counting,
    network::Network,
    world::{Seen, run},
};

/// Jitter that is added to each way. The answers take no longer than half of the answers to 100 ms,
/// so that the default keeps to buckets of ten.
const JITTERS: [&str; 7] = [
    "none",
    "uniform:0ms:50ms",
    "lognormal:10ms:200ms",
    "stall:5s:300ms",
    "stall:20s:3s",
    "pareto:5ms:1.5",
    "reordering",
];

/// Returns the calls of a run, if they are not a matter of precision.
fn calls() -> u32 {
    std::env::var("RULES_CALLS").map_or(2_000, |calls| {
        calls.parse().expect("RULES_CALLS is a number of calls")
    })
}

/// Makes `calls` calls through each network, and asserts that none is refused by `countings`.
async fn accepted(countings: &[Counting], limits: &Limits, calls: u32) -> Vec<Seen> {
    let mut all = Vec::new();
    for jitter in JITTERS {
        let network = Network::new("0ms", jitter, "lognormal:20ms:100ms").with_bodies();
        let seen = run(countings, network, limits.clone(), calls).await;
        let what = format!("{countings:?} under {jitter}: {seen:?}");
        assert!(seen.refused() == 0 && seen.over.is_empty(), "{what}");
        assert_eq!(seen.calls(), calls as usize, "{what}");
        for (counting, largest) in countings.iter().zip(&seen.largest) {
            let limit = f64::from(counting.limit);
            assert!(largest.interval as f64 <= limit, "{what}");
            assert!(largest.estimate <= limit, "{what}");
            // The bucket is kept for quotas of a second, and the window bounds it for longer ones.
            let burst = if counting.per > Duration::from_secs(1) {
                limit - 1.0
            } else {
                10.0_f64.min(limit - 1.0)
            };
            assert!(largest.level <= burst, "{what}");
        }
        all.push(seen);
    }
    all
}

/// The same, for 50 per second with the default limits.
async fn default_is_accepted(rule: Rule) {
    let all = accepted(&[Counting::of_50(rule)], &Limits::default(), calls()).await;
    // The run is long enough for a stall of three seconds.
    let longest = all.iter().map(|seen| seen.longest_way).max();
    assert!(longest >= Some(Duration::from_millis(2_900)), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn fixed_windows_refuse_nothing() {
    default_is_accepted(Rule::FixedWindow).await;
}

#[tokio::test(start_paused = true)]
async fn sliding_logs_refuse_nothing() {
    default_is_accepted(Rule::SlidingLog).await;
}

#[tokio::test(start_paused = true)]
async fn sliding_logs_that_count_refusals_refuse_nothing() {
    default_is_accepted(Rule::SlidingLogAll).await;
}

#[tokio::test(start_paused = true)]
async fn weighing_counters_refuse_nothing() {
    default_is_accepted(Rule::SlidingCounter).await;
}

#[tokio::test(start_paused = true)]
async fn buckets_of_49_refuse_nothing() {
    default_is_accepted(Rule::LeakyBucket { burst: 49 }).await;
}

#[tokio::test(start_paused = true)]
async fn buckets_of_10_refuse_nothing() {
    default_is_accepted(Rule::LeakyBucket { burst: 10 }).await;
}

#[tokio::test(start_paused = true)]
async fn in_flight_counts_refuse_nothing_with_proof_at_the_end() {
    let limits = Limits::default().proof(Proof::End);
    for seen in accepted(&[Counting::of_50(Rule::InFlight)], &limits, calls()).await {
        assert!(seen.largest[0].in_flight <= 50, "{seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn in_flight_counts_refuse_calls_with_proof_at_the_head() {
    // Shows that the test above can fail.
    let counting = [Counting::of_50(Rule::InFlight)];
    let network = Network::new("0ms", "none", "1s").with_bodies();
    let seen = run(&counting, network, Limits::default(), 1_000).await;
    assert!(
        seen.refused() > 0 && seen.largest[0].in_flight > 50,
        "{seen:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn window_alone_is_refused_by_counters_and_buckets() {
    // Shows that the tests above can fail.
    let limits = Limits::default().rules(Rules::window());
    let network = || Network::new("0ms", "none", "none");
    let counting = [Counting::of_50(Rule::SlidingCounter)];
    let counter = run(&counting, network(), limits.clone(), 2_000).await;
    assert!(
        counter.refused() > 0 && !counter.over.is_empty(),
        "{counter:?}"
    );
    assert!(counter.largest[0].estimate > 50.0, "{counter:?}");
    let counting = [Counting::of_50(Rule::LeakyBucket { burst: 10 })];
    let bucket = run(&counting, network(), limits, 2_000).await;
    assert!(
        bucket.refused() > 0 && !bucket.over.is_empty(),
        "{bucket:?}"
    );
    assert!(bucket.largest[0].level > 10.0, "{bucket:?}");
}
