//! A service whose clock runs apart from the client's, and in whole milliseconds.

use tds_sim::Rule;
use tower_tds::{Limits, Proof};

use crate::{
    accepted, calls,
    judge::{Clock, Counting},
};

/// 500 ppm either way: the most that NTP corrects by slewing.
const CLOCKS: [Clock; 2] = [Clock::Ticks(-500), Clock::Ticks(500)];

#[tokio::test(start_paused = true)]
async fn drifting_server_clock_refuses_no_request() {
    let calls = (calls() / 10).max(500);
    for clock in CLOCKS {
        let rules = [
            Rule::FixedWindow,
            Rule::SlidingLogAll,
            Rule::SlidingCounter,
            Rule::LeakyBucket { burst: 10 },
        ];
        let countings = rules.map(|rule| Counting::of_50(rule).by(clock));
        accepted(&countings, &Limits::default(), calls).await;
        let counting = Counting::of_50(Rule::InFlight).by(clock);
        let limits = Limits::default().proof(Proof::End);
        accepted(&[counting], &limits, calls).await;
    }
}
