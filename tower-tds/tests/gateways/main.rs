//! Real gateways, which nobody here wrote: nginx and HAProxy count requests and connections, and
//! what they wrote into their logs is the judge.
//!
//! Each run is 200 tasks with the assembled client, through a gateway to the simulated service,
//! calm or with a relay in between that makes the network rough. The simulated service itself is
//! there too, behind the relay. Asserted of every run, whatever
//! the machine's load: no call is lost, none is refused, and in no alignment does the log's
//! estimate of a weighing counter exceed 50. How fast it went is printed; the whole set asserts
//! the bars as well, the part of it that runs by default only that nothing stood still.
//!
//! The whole set takes about a quarter of an hour:
//! `cargo test --release -p tower-tds --test gateways the_whole -- --ignored --nocapture --test-threads 1`

#![expect(
    clippy::expect_used,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a surprise in a test is a failed test, and so should an overflow be"
)]

use std::{fmt, num::NonZeroU32};

use tds_sim::{Network, Relay, Rule};
use tower_tds::{Limits, Quota};

mod gateway;
mod haproxy;
mod load;
mod log;
mod nginx;
mod program;

use self::{
    gateway::{Gateway, Kind},
    load::Load,
    log::Log,
};

/// One run.
#[derive(Debug, Clone, Copy)]
struct Scenario {
    gateway: Kind,
    load: Load,
    way: Way,
    calls: u32,
}

/// The network between client and gateway, each way.
#[derive(Debug, Clone, Copy)]
enum Way {
    Calm,
    /// Lognormal delays, median 10 ms, one in a hundred above 200 ms.
    Lognormal,
    /// Everything stands still for 300 ms of each 4.7 s, so that the stalls meet every phase of a
    /// second.
    Stalls,
}

/// How a run went.
struct Seen {
    scenario: Scenario,
    log: Log,
    lost: Vec<String>,
}

// === impl Scenario ===

impl Scenario {
    /// Runs it within the contract's limits, unless there is no such gateway here.
    async fn run(self) -> Option<Seen> {
        // The tokens come past the gateway, by a socket of their own.
        let sockets = NonZeroU32::new(60 + 1).expect("not zero");
        self.run_within(Limits::default().connections(sockets))
            .await
    }

    async fn run_within(self, limits: Limits) -> Option<Seen> {
        let service = self.gateway.service().await;
        let gateway = Gateway::start(self.gateway, &service).await?;

        let relay = match self.way.network() {
            Some(network) => {
                let relay = Relay::start(gateway.address(), network).await;
                Some(relay.expect("a free port"))
            }
            None => None,
        };
        let front = relay.as_ref().map_or(gateway.address(), Relay::address);
        let client = load::client(&service, front, limits);
        let lost = load::drive(client, front, self.load, self.calls).await;
        let seen = Seen {
            scenario: self,
            log: gateway.log(self.calls as usize).await,
            lost,
        };
        program::say(&seen.to_string());
        Some(seen)
    }
}

// === impl Way ===

impl Way {
    fn network(self) -> Option<Network> {
        let delay = match self {
            Self::Calm => return None,
            Self::Lognormal => "lognormal:10ms:200ms",
            Self::Stalls => "stall:4700ms:300ms",
        };
        let mut network = Network::default();
        network.there = delay.parse().expect("a delay");
        network.back = network.there;
        network.seed = 7;
        Some(network)
    }
}

// === impl Seen ===

impl Seen {
    /// What holds whatever the machine's load is.
    fn assert_nothing_refused(&self) {
        assert!(self.lost.is_empty(), "{self}: {:?}", self.lost);
        assert_eq!(self.log.count(423) + self.log.count(416), 0, "{self}");
        assert_eq!(self.log.count(200), self.scenario.calls as usize, "{self}");
        assert!(self.log.largest_estimate() <= 50.0, "{self}");
        assert!(self.log.most_sockets() <= 60, "{self}");
    }

    /// The share of what the limits allow: of 50 a second, or of 60 sockets in use.
    fn utilisation(&self) -> f64 {
        match self.scenario.load {
            Load::Small | Load::Medium => self.log.rate() / 50.0,
            Load::Long => self.log.occupied(60),
        }
    }

    /// The bars of the whole set.
    fn bar(&self) -> f64 {
        match (self.scenario.load, self.scenario.way) {
            (Load::Long, _) => 0.93,
            (_, Way::Calm) => 0.96,
            (_, Way::Lognormal) => 0.89,
            (_, Way::Stalls) => 0.88,
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scenario {
            gateway, load, way, ..
        } = self.scenario;
        write!(
            f,
            "{gateway:?} {load:?} {way:?}: {} x 200, {} x 423, {} x 416, {} lost; at most {:.2} in \
             any alignment, {} in a second, {} sockets; {:.3} of the possible (bar {:.2})",
            self.log.count(200),
            self.log.count(423),
            self.log.count(416),
            self.lost.len(),
            self.log.largest_estimate(),
            self.log.largest_second(),
            self.log.most_sockets(),
            self.utilisation(),
            self.bar(),
        )
    }
}

/// The part that every test run has: all of it in a fifth of the calls.
async fn briefly(gateway: Kind, load: Load, ways: &[Way]) {
    for way in ways.iter().copied() {
        let scenario = Scenario {
            gateway,
            load,
            way,
            calls: load.calls() / 5,
        };
        let Some(seen) = scenario.run().await else {
            return;
        };
        seen.assert_nothing_refused();
        // On a machine that is busy with other things too, a third is still far from a standstill.
        assert!(seen.utilisation() > 0.33, "{seen}");
    }
}

/// nginx without a burst, the one way of counting that the default is not safe against: it refuses
/// whoever sends two within 20 ms. The first 423 says so, and from then on the client is slower.
async fn slower_after_ten(way: Way, calls: u32) {
    let scenario = Scenario {
        gateway: Kind::Nginx { burst: 0 },
        load: Load::Small,
        way,
        calls,
    };
    let Some(seen) = scenario.run().await else {
        return;
    };
    assert!(seen.lost.is_empty(), "{seen}: {:?}", seen.lost);
    assert!(seen.log.count(423) <= 10, "{seen}");
}

async fn wholly(gateway: Kind) {
    let mut below = Vec::new();
    for load in [Load::Small, Load::Medium, Load::Long] {
        for way in [Way::Calm, Way::Lognormal, Way::Stalls] {
            let scenario = Scenario {
                gateway,
                load,
                way,
                calls: load.calls(),
            };
            let seen = scenario.run().await.expect("the whole set needs both");
            seen.assert_nothing_refused();
            if seen.utilisation() < seen.bar() {
                below.push(seen.to_string());
            }
        }
    }
    assert!(below.is_empty(), "below the bar:\n{}", below.join("\n"));
}

const ALL: [Way; 3] = [Way::Calm, Way::Lognormal, Way::Stalls];

#[tokio::test]
async fn the_simulated_service_refuses_nothing_through_a_rough_network() {
    let rules = [
        Rule::FixedWindow,
        Rule::SlidingLogAll,
        Rule::SlidingCounter,
        Rule::LeakyBucket { burst: 10 },
    ];
    for rule in rules {
        let ways = [Way::Lognormal, Way::Stalls];
        briefly(Kind::Simulator(rule), Load::Small, &ways).await;
    }
}

#[tokio::test]
async fn nginx_with_a_burst_of_49_refuses_nothing() {
    briefly(Kind::Nginx { burst: 49 }, Load::Small, &ALL).await;
}

#[tokio::test]
async fn nginx_with_a_burst_of_10_refuses_nothing() {
    briefly(Kind::Nginx { burst: 10 }, Load::Small, &ALL).await;
    briefly(Kind::Nginx { burst: 10 }, Load::Medium, &[Way::Lognormal]).await;
    briefly(Kind::Nginx { burst: 10 }, Load::Long, &[Way::Calm]).await;
}

#[tokio::test]
async fn nginx_without_a_burst_refuses_ten_at_most_and_loses_nothing() {
    slower_after_ten(Way::Calm, 300).await;
    slower_after_ten(Way::Lognormal, 150).await;
    slower_after_ten(Way::Stalls, 300).await;
}

#[tokio::test]
async fn haproxy_refuses_nothing() {
    briefly(Kind::Haproxy, Load::Small, &ALL).await;
    briefly(Kind::Haproxy, Load::Medium, &[Way::Lognormal]).await;
    briefly(Kind::Haproxy, Load::Long, &[Way::Calm, Way::Stalls]).await;
}

#[tokio::test]
async fn without_the_limits_each_gateway_refuses() {
    // Or the tests above could not fail.
    let many = NonZeroU32::new(1_000_000).expect("not zero");
    let limits = Limits::new(Quota::per_second(many))
        .in_flight(many)
        .connections(many);
    for gateway in [
        Kind::Nginx { burst: 49 },
        Kind::Nginx { burst: 10 },
        Kind::Haproxy,
    ] {
        let scenario = Scenario {
            gateway,
            load: Load::Long,
            way: Way::Calm,
            calls: 150,
        };
        let Some(seen) = scenario.run_within(limits.clone()).await else {
            return;
        };
        assert!(seen.log.count(423) > 0, "{seen}");
        assert!(seen.log.largest_estimate() > 50.0, "{seen}");
        if matches!(gateway, Kind::Nginx { burst: 49 }) {
            // It lets 50 in at once, which stay for 3 s, and 50 more a second.
            assert!(seen.log.most_sockets() > 60, "{seen}");
            assert!(seen.log.count(416) > 0, "{seen}");
        }
    }
}

#[tokio::test]
#[ignore = "five minutes; see the head of this file"]
async fn the_whole_of_nginx_with_a_burst_of_49() {
    wholly(Kind::Nginx { burst: 49 }).await;
}

#[tokio::test]
#[ignore = "five minutes; see the head of this file"]
async fn the_whole_of_nginx_with_a_burst_of_10() {
    wholly(Kind::Nginx { burst: 10 }).await;
}

#[tokio::test]
#[ignore = "five minutes; see the head of this file"]
async fn the_whole_of_haproxy() {
    wholly(Kind::Haproxy).await;
}
