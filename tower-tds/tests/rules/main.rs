//! The limits against every way of counting of the simulated service, and against independent
//! models of the same. The runs are always backlogged, under paused time, with delays before and
//! after the count. No request may be refused.
//!
//! By default there are 2,000 calls through each network, which all ways of counting judge. The whole
//! matrix has a million (`.ci/matrix` runs it):
//! `RULES_CALLS=1000000 cargo test --release -p tower-tds --test rules`

#![expect(
    clippy::expect_used,
    reason = "a surprise in a test is a failed test, and so should an overflow be"
)]

use std::{num::NonZeroU32, time::Duration};

use tds_sim::Rule;
use tower_tds::{Limits, Proof, Quota, layers::limits::Rules};

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
    judge::{Clock, Counting},
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

/// All of them judge the same arrivals, because none refuses any.
#[tokio::test(start_paused = true)]
async fn windows_logs_counters_and_buckets_refuse_nothing() {
    let rules = [
        Rule::FixedWindow,
        Rule::SlidingLog,
        Rule::SlidingLogAll,
        Rule::SlidingCounter,
        Rule::LeakyBucket { burst: 49 },
        Rule::LeakyBucket { burst: 10 },
    ];
    let all = accepted(&rules.map(Counting::of_50), &Limits::default(), calls()).await;
    // The run is long enough for a stall of three seconds.
    let longest = all.iter().map(|seen| seen.longest_way).max();
    assert!(longest >= Some(Duration::from_millis(2_900)), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn in_flight_counts_refuse_nothing_with_proof_at_the_end() {
    let limits = Limits::default().proof(Proof::End);
    for seen in accepted(&[Counting::of_50(Rule::InFlight)], &limits, calls()).await {
        assert!(seen.largest[0].in_flight <= 50, "{seen:?}");
    }
}

/// Shows that the tests above, and those of clocks, can fail: without a rule, a proof or a guard that a
/// service needs, it refuses calls.
#[tokio::test(start_paused = true)]
async fn limits_without_what_a_service_needs_are_refused() {
    let window = |limits: Limits| limits.rules(Rules::window());
    // A permit is held for the interval, one part in 2,000 of it, and 1.5 ms: of 998 ms that is one second.
    let fifty = NonZeroU32::new(50).expect("50 is not zero");
    let unguarded = Quota::new(fifty, Duration::from_millis(998)).expect("an interval");
    let slow = Clock::Ticks(-500);
    for (rule, clock, limits, refused) in [
        (Rule::InFlight, Clock::Exact, Limits::default(), true),
        (
            Rule::SlidingCounter,
            Clock::Exact,
            window(Limits::default()),
            true,
        ),
        (
            Rule::LeakyBucket { burst: 10 },
            Clock::Exact,
            window(Limits::default()),
            true,
        ),
        (Rule::SlidingLog, slow, window(Limits::new(unguarded)), true),
        (Rule::SlidingLog, slow, window(Limits::default()), false),
    ] {
        let mut network = Network::new("0ms", "none", "none");
        if rule == Rule::InFlight {
            network = Network::new("0ms", "none", "1s").with_bodies();
        }
        let seen = run(&[Counting::of_50(rule).by(clock)], network, limits, 2_000).await;
        assert_eq!(!seen.over.is_empty(), refused, "{rule:?}: {seen:?}");
        let largest = seen.largest[0];
        let is_over = match rule {
            Rule::InFlight => largest.in_flight > 50,
            Rule::SlidingCounter => largest.estimate > 50.0,
            Rule::LeakyBucket { .. } => largest.level > 10.0,
            _ => largest.interval > 50,
        };
        assert_eq!(is_over, refused, "{rule:?}: {seen:?}");
    }
}
