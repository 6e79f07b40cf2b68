//! The rung above the proof, on the path that it is for.

use tds_sim::Rule;
use tower_tds::{Limits, layers::limits::Rung};

use crate::{
    judge::Counting,
    network::Network,
    run::{Seen, run},
};

/// On a path whose delays differ by 10 ms at the most.
async fn calm(rule: Rule) -> Seen {
    let counting = [Counting::of_50(rule)];
    let network = Network::new("10ms", "uniform:0ms:5ms", "40ms");
    let limits = Limits::default().start_at(Rung::Paced);
    let seen = run(&counting, network, limits, CALLS).await;
    // It proves nothing, and what it says can have been counted is right all the same.
    assert!(seen.largest[0].interval <= seen.certificate, "{seen:?}");
    seen
}

#[tokio::test(start_paused = true)]
async fn a_calm_path_is_used_to_97_hundredths_and_refuses_nothing() {
    for rule in [
        Rule::FixedWindow,
        Rule::SlidingLogAll,
        Rule::LeakyBucket { burst: 10 },
    ] {
        let seen = calm(rule).await;
        assert_eq!(seen.refused, 0, "{seen:?}");
        assert!(seen.rate / 50.0 >= 0.97, "{seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_weighing_counter_refuses_it_once_and_then_the_proof_holds() {
    // Of even spacing such a counter sees up to one more than a second holds.
    let seen = calm(Rule::SlidingCounter).await;
    assert!((1..=2).contains(&seen.refused), "{seen:?}");
}

/// Three minutes: no rung is tried again.
const CALLS: u32 = 10_000;
