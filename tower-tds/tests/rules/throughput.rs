//! Throughput of the limits, compared with the most that a safe client can reach.

use tds_sim::Rule;
use tower_tds::{Limits, Proof, layers::limits::Rules};

use crate::{calls, judge::Counting, network::Network, world::run};

/// For each jitter: the share of 50 per second that a safe client can reach, with the window rule
/// and with the default rules. A service that counts requests in flight (`Proof::End`) allows the
/// former. The network takes 10 ms each way, and responses come after 80 ms (lognormal, sigma 0.5).
const BOUNDS: [(&str, f64, f64); 5] = [
    ("none", 0.898, 0.849),
    ("uniform:0ms:5ms", 0.894, 0.846),
    ("uniform:0ms:50ms", 0.860, 0.813),
    ("lognormal:10ms:200ms", 0.863, 0.813),
    ("stall:5s:300ms", 0.888, 0.816),
];

#[tokio::test(start_paused = true)]
async fn throughput_is_within_one_percent_of_the_safe_bound() {
    let window = || Limits::default().rules(Rules::window());
    for (jitter, bound, default) in BOUNDS {
        for (rule, limits, bound) in [
            (Rule::SlidingLog, window(), bound),
            (Rule::SlidingLog, Limits::default(), default),
            (Rule::InFlight, window().proof(Proof::End), bound),
        ] {
            let mut network = Network::new("10ms", jitter, "lognormal:80ms:256ms");
            if rule == Rule::InFlight {
                network = network.with_bodies();
            }
            let counting = [Counting::of_50(rule)];
            let seen = run(&counting, network, limits, calls().max(20_000)).await;
            let share = seen.rate_from_the_first() / 50.0;
            let case = format!("{jitter}, {rule:?}: {share} of {bound}");
            assert!((share - bound).abs() < 0.01, "{case}");
            assert!(rule != Rule::InFlight || seen.refused() == 0, "{case}");
        }
    }
}
