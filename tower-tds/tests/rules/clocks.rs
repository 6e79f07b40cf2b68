//! A service whose clock runs apart from the client's, and in whole milliseconds.

use std::{num::NonZeroU32, time::Duration};

use tds_sim::Rule;
use tower_tds::{Limits, Proof, Quota, layers::limits::Rules};

use crate::{
    accepted, calls,
    judge::{Clock, Counting},
    network::Network,
    world::run,
};

/// 500 ppm either way: the most that NTP corrects by slewing.
const CLOCKS: [Clock; 2] = [Clock::Ticks(-500), Clock::Ticks(500)];

#[tokio::test(start_paused = true)]
async fn drifting_server_clock_refuses_no_request() {
    let calls = (calls() / 10).max(500);
    for clock in CLOCKS {
        for rule in [
            Rule::FixedWindow,
            Rule::SlidingLogAll,
            Rule::SlidingCounter,
            Rule::LeakyBucket { burst: 10 },
        ] {
            let counting = Counting::of_50(rule).by(clock);
            accepted(&[counting], &Limits::default(), calls).await;
        }
        let counting = Counting::of_50(Rule::InFlight).by(clock);
        let limits = Limits::default().proof(Proof::End);
        accepted(&[counting], &limits, calls).await;
    }
}

#[tokio::test(start_paused = true)]
async fn slow_server_clock_exceeds_the_limit_without_a_guard() {
    // Otherwise the test above could not fail. A permit is held for the interval, one part in 2,000 of
    // it, and 1.5 ms: of 998 ms that is one second.
    let fifty = NonZeroU32::new(50).expect("50 is not zero");
    let unguarded = Quota::new(fifty, Duration::from_millis(998)).expect("an interval");
    let guarded = Quota::per_second(fifty);
    let counting = Counting::of_50(Rule::SlidingLog).by(Clock::Ticks(-500));
    for (quota, guarded) in [(unguarded, false), (guarded, true)] {
        let limits = Limits::new(quota);
        let network = || Network::new("0ms", "none", "none");
        let counter = run(&[counting], network(), limits.clone(), 2_000).await;
        assert_eq!(counter.largest[0].estimate <= 50.0, guarded, "{counter:?}");
        let limits = limits.rules(Rules::window());
        let log = run(&[counting], network(), limits, 2_000).await;
        assert_eq!(log.over.is_empty(), guarded, "{log:?}");
    }
}
