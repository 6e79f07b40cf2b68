//! Real gateways: nginx and HAProxy count requests and connections, and their logs decide.
//!
//! In each run, 200 tasks use the assembled client through a gateway to the simulated service. The
//! network is calm, or a relay adds delays.
//!
//! Each run asserts, under any load of the machine: no call is lost or refused, the log's estimate
//! of a weighing counter never exceeds 50, and there are never more than 60 sockets. For buckets
//! with a small burst, at most one call in 25 may be refused. The throughput is printed. The whole
//! set also asserts the bars of throughput. The part that runs by default only asserts that the
//! calls did not stall.
//!
//! The whole set takes about 35 minutes:
//! `cargo test --release -p suites --test gateways the_whole -- --ignored --nocapture --test-threads 1`

#![expect(
    clippy::expect_used,
    reason = "a surprise in a test is a failed test, and so should an overflow be"
)]

use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinSet;

mod audit;
mod gateway;
mod haproxy;
mod load;
mod log;
mod mixes;
mod nginx;
mod program;
mod scenario;
mod stranger;

use self::{
    gateway::Kind,
    load::Load,
    scenario::{STALLS, Seen, Way},
    stranger::{Comes, Visit},
};

/// The part that runs by default: a fifth of the calls, all cells at once, because each mostly
/// waits. How quick they are is asserted where each cell has the machine for itself, and under
/// paused time in `tests/rules/throughput.rs`.
async fn briefly(gateway: Kind, cells: impl IntoIterator<Item = (Load, Way)>) {
    let mut runs = JoinSet::new();
    for (load, way) in cells {
        runs.spawn(gateway.under(load, way, load.calls() / 5).run());
    }
    for seen in runs.join_all().await.into_iter().flatten() {
        seen.assert_nothing_refused();
    }
}

/// nginx without a burst. It refuses the second of two requests within 20 ms, so the default is not
/// safe here, and the client spaces its requests at the first 423.
///
/// How many may it cost? At most `b + 1` requests are unproven at once. When they arrive together,
/// nginx accepts one and refuses `b`, and the silence keeps back all others. The default has `b = 9`
/// while responses are quick. Then it sends less at each of six more refusals, so that a calm run has
/// at most fifteen: `tests/rules/refusals.rs` asserts that under paused time. Here the machine itself
/// may be busy, and what it holds up arrives together. At most five are without evidence by then, so
/// each stall costs four; as in the worst of the networks, one in five seconds is allowed. Of 600
/// calls at most 45 are refused.
async fn slower_once_refused(way: Way, calls: u32) -> Option<Seen> {
    let gateway = Kind::Nginx { burst: 0 };
    let seen = gateway.under(Load::Small, way, calls).run().await?;
    assert!(seen.lost.is_empty(), "{seen}: {:?}", seen.lost);
    let stalls = f64::from(calls) / seen.log.rate() / 5.0;
    let most = 4.0f64.mul_add(stalls.ceil(), 15.0).min(45.0);
    assert!(seen.log.count(423) as f64 <= most, "{most}: {seen}");
    Some(seen)
}

#[tokio::test]
#[ignore = "fifteen minutes; see the head of this file"]
async fn the_whole_of_both_gateways_refuses_nothing_and_meets_the_bars() {
    for burst in [49, 10] {
        wholly(Kind::Nginx { burst }).await;
    }
    wholly(Kind::Haproxy).await;
}

async fn wholly(gateway: Kind) {
    let mut below = Vec::new();
    for load in [Load::Small, Load::Medium, Load::Long] {
        for way in ALL {
            let seen = gateway.under(load, way, load.calls()).run().await;
            let seen = seen.expect("the whole set needs both");
            seen.assert_nothing_refused();
            if seen.utilisation() < seen.bar() {
                below.push(seen.to_string());
            }
        }
    }
    assert!(below.is_empty(), "below the bar:\n{}", below.join("\n"));
}

const ALL: [Way; 3] = [Way::Calm, Way::Lognormal, STALLS];

/// Each load and each way.
const CELLS: [(Load, Way); 5] = [
    (Load::Small, Way::Calm),
    (Load::Small, Way::Lognormal),
    (Load::Small, STALLS),
    (Load::Medium, Way::Lognormal),
    (Load::Long, Way::Calm),
];

#[tokio::test]
async fn nginx_with_a_burst_of_49_refuses_nothing() {
    briefly(Kind::Nginx { burst: 49 }, CELLS).await;
}

#[tokio::test]
async fn nginx_with_a_burst_of_10_refuses_nothing() {
    briefly(Kind::Nginx { burst: 10 }, CELLS).await;
}

#[tokio::test]
async fn nginx_without_a_burst_refuses_a_few_and_loses_nothing() {
    tokio::join!(
        slower_once_refused(Way::Calm, 200),
        slower_once_refused(Way::Lognormal, 100),
        slower_once_refused(STALLS, 150),
    );
}

#[tokio::test]
async fn haproxy_refuses_nothing() {
    briefly(Kind::Haproxy, CELLS).await;
}

/// nginx counts requests in process, and refuses every newcomer when all of the limit is in use.
const VISITS: [(Kind, Comes); 3] = [
    (Kind::Nginx { burst: 49 }, Comes::First),
    (Kind::Haproxy, Comes::First),
    (Kind::Haproxy, Comes::Later),
];

/// Ten sockets for six seconds.
const fn visit((gateway, comes): (Kind, Comes)) -> Visit {
    Visit {
        gateway,
        comes,
        sockets: 10,
        stays: Duration::from_secs(6),
        calls: 240,
    }
}

/// Each refusal causes a silence and lowers the limit by a sixth. Requests in flight by then are
/// refused as well.
const FEW: usize = 3 * 10;

#[tokio::test]
async fn shared_address_causes_few_refusals_and_no_lost_call() {
    a_stranger_costs_a_few().await;
    a_stranger_who_holds_half_costs_no_call().await;
}

async fn a_stranger_costs_a_few() {
    let visited = join_all(VISITS.map(|who| visit(who).run())).await;
    let visited: Vec<_> = visited.into_iter().flatten().collect();
    // On a machine that is too slow to use all sockets, one of them may see no refusal.
    let refused = visited
        .iter()
        .map(|seen| seen.log.count(416))
        .sum::<usize>();
    assert!(
        visited.is_empty() || refused > 0,
        "the stranger was not met"
    );
    for seen in visited {
        assert!(seen.lost.is_empty(), "{seen}: {:?}", seen.lost);
        assert!(seen.log.count(416) <= FEW, "{seen}");
        assert_eq!(seen.after.count(416), 0, "{seen}");
        // For ten minutes the limit stays about where the stranger's sockets put it, if they were met.
        let is_met = seen.log.count(416) > 0;
        assert!(
            !is_met || (45..60).contains(&seen.after.most_sockets()),
            "{seen}"
        );
        // The stranger's requests count in HAProxy's rate for two seconds, beside our full one.
        assert!(seen.log.count(423) <= 2, "{seen}");
    }
}

/// A stranger who comes with half of the sockets when all are in use.
const fn half(gateway: Kind, stays: u64, calls: u32) -> Visit {
    Visit {
        gateway,
        comes: Comes::Later,
        sockets: 30,
        stays: Duration::from_secs(stays),
        calls,
    }
}

/// HAProxy refuses the whole address until at most 60 sockets are open, including idle ones. Each
/// refused request closes its own socket. So there is one for each of the stranger's sockets, and for
/// each of the ten in flight at the first refusal. More come while closed sockets are still counted: one
/// or two, or on a busy machine as many as are in flight.
const HALF: usize = 30 + 10 + 10;

async fn a_stranger_who_holds_half_costs_no_call() {
    let Some(seen) = half(Kind::Haproxy, 12, 260).run().await else {
        return;
    };
    assert!(seen.lost.is_empty(), "{seen}: {:?}", seen.lost);
    assert!((1..=HALF).contains(&seen.log.count(416)), "{seen}");
}

#[tokio::test]
#[ignore = "ten minutes; see the head of this file"]
async fn the_whole_set_loses_no_call_with_a_shared_address() {
    // nginx refuses newcomers where all are in use, and HAProxy refuses the whole address.
    let visits = [
        half(Kind::Nginx { burst: 49 }, 600, 12_300),
        half(Kind::Haproxy, 600, 6_600),
    ];
    for seen in join_all(visits.map(Visit::run)).await {
        let seen = seen.expect("the whole set needs both");
        assert!(seen.lost.is_empty(), "{seen}: {:?}", seen.lost);
        assert!(seen.log.count(416) <= FEW, "{seen}");
    }
}

#[tokio::test]
async fn gateways_refuse_calls_without_the_limits() {
    // Otherwise the tests above could not fail.
    let gateways = [
        Kind::Nginx { burst: 49 },
        Kind::Nginx { burst: 10 },
        Kind::Haproxy,
    ];
    let runs = gateways.map(|gateway| {
        gateway
            .under(Load::Long, Way::Calm, 200)
            .run_with(load::bare)
    });
    for seen in join_all(runs).await.into_iter().flatten() {
        assert!(seen.log.count(423) > 0, "{seen}");
        assert!(seen.log.largest_estimate() > 50.0, "{seen}");
        assert!(seen.log.most_sockets() > 60, "{seen}");
    }
}

#[tokio::test]
#[ignore = "five minutes; see the head of this file"]
async fn the_whole_of_nginx_without_a_burst() {
    for way in ALL {
        let seen = slower_once_refused(way, Load::Small.calls()).await;
        assert!(seen.is_some(), "the whole set needs both");
    }
}
