//! Slow responses, for which the automatic burst is not proven for buckets of ten.

use tds_sim::Rule;
use tower_tds::{
    Limits,
    layers::limits::{Burst, Rules},
};

use crate::{calls, judge::Counting, network::Network, world::run};

const WAYS: [&str; 3] = ["none", "lognormal:10ms:200ms", "stall:5s:300ms"];

/// Answers after 300 ms (sigma 0.5): then ten unproven requests would be a third of the rate.
fn slow(jitter: &str) -> Network {
    Network::new("10ms", jitter, "lognormal:300ms:960ms")
}

/// The automatic burst is not proven there. It keeps within the bucket in this run.
#[tokio::test(start_paused = true)]
async fn automatic_burst_is_not_refused_at_slow_responses() {
    for jitter in WAYS {
        let counting = [Counting::of_50(Rule::LeakyBucket { burst: 10 })];
        let calls = calls().max(20_000);
        let seen = run(&counting, slow(jitter), Limits::default(), calls).await;
        assert_eq!(seen.refused(), 0, "{jitter}: {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn burst_of_ten_holds_at_slow_responses() {
    let limits = Limits::default().rules(Rules {
        bucket: Some(Burst::Of(10)),
        ..Rules::default()
    });
    for jitter in WAYS {
        let counting = [Counting::of_50(Rule::LeakyBucket { burst: 10 })];
        let seen = run(&counting, slow(jitter), limits.clone(), calls()).await;
        assert!(
            seen.refused() == 0 && seen.over.is_empty(),
            "{jitter}: {seen:?}"
        );
        assert!(seen.largest[0].level <= 10.0, "{jitter}: {seen:?}");
    }
}
