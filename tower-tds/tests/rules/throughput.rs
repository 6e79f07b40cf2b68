//! Throughput of the limits, compared with the most that a safe client can reach.

use tds_sim::Rule;
use tower_tds::{Limits, Proof, layers::limits::Rules};

use crate::{calls, judge::Counting, network::Network, world::run};

/// For each jitter: the share of 50 per second that a safe client can reach, with the window rule
/// and with the default rules. The network takes 10 ms each way, and responses come after 80 ms
/// (lognormal, sigma 0.5).
const BOUNDS: [(&str, f64, f64); 5] = [
    ("none", 0.898, 0.849),
    ("uniform:0ms:5ms", 0.894, 0.846),
    ("uniform:0ms:50ms", 0.860, 0.813),
    ("lognormal:10ms:200ms", 0.863, 0.813),
    ("stall:5s:300ms", 0.888, 0.816),
];

#[tokio::test(start_paused = true)]
async fn throughput_is_within_one_percent_of_the_safe_bound() {
    for (jitter, window, default) in BOUNDS {
        for (rules, bound) in [(Rules::window(), window), (Rules::default(), default)] {
            let network = Network::new("10ms", jitter, "lognormal:80ms:256ms");
            let limits = Limits::default().rules(rules);
            let counting = [Counting::of_50(Rule::SlidingLog)];
            let seen = run(&counting, network, limits, calls().max(20_000)).await;
            let share = seen.rate_from_the_first() / 50.0;
            assert!(
                (share - bound).abs() < 0.01,
                "{jitter}: {share} of {bound}, {rules:?}"
            );
        }
    }
}

/// The same with the window rule, for a service that counts requests in flight (`Proof::End`).
const BY_THE_END: [f64; 5] = [0.898, 0.894, 0.860, 0.863, 0.888];

#[tokio::test(start_paused = true)]
async fn throughput_with_proof_at_the_end_matches_its_bound() {
    for ((jitter, ..), bound) in BOUNDS.into_iter().zip(BY_THE_END) {
        let network = Network::new("10ms", jitter, "lognormal:80ms:256ms").with_bodies();
        let limits = Limits::default().rules(Rules::window()).proof(Proof::End);
        let counting = [Counting::of_50(Rule::InFlight)];
        let seen = run(&counting, network, limits, calls().max(10_000)).await;
        let share = seen.rate_from_the_first() / 50.0;
        assert_eq!(seen.refused(), 0, "{jitter}: {seen:?}");
        assert!((share - bound).abs() < 0.01, "{jitter}: {share} of {bound}");
    }
}
