//! One run: its load, its gateway, its network, and its result.

use std::{
    fmt::{self, Display},
    net::SocketAddr,
};

use tds_sim::{Network, Relay, Server};

use crate::{
    gateway::Kind,
    load::{self, Caller, Load},
    log::Log,
    program::say,
};

/// One run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    gateway: Kind,
    load: Load,
    way: Way,
    calls: u32,
}

/// The network between client and gateway, each way.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    Calm,
    /// Lognormal delays, median 10 ms, one in a hundred above 200 ms.
    Lognormal,
    /// The network stalls at intervals.
    Stalls(&'static str),
}

/// For 300 ms of each 4.7 s, so that the stalls meet every phase of a second.
pub(crate) const STALLS: Way = Way::Stalls("stall:4700ms:300ms");

/// The result of a run.
pub(crate) struct Seen {
    scenario: Scenario,
    pub(crate) log: Log,
    pub(crate) lost: Vec<String>,
}

// === impl Kind ===

impl Kind {
    /// So many calls of this load through it, by this way.
    pub(crate) const fn under(self, load: Load, way: Way, calls: u32) -> Scenario {
        Scenario {
            gateway: self,
            load,
            way,
            calls,
        }
    }
}

// === impl Scenario ===

impl Scenario {
    /// Runs it with the crate's stack. Returns `None` if the gateway is not installed.
    pub(crate) async fn run(self) -> Option<Seen> {
        self.run_with(load::client).await
    }

    /// Runs it with the client that is made of the service's and the gateway's addresses.
    pub(crate) async fn run_with(self, client: fn(&Server, SocketAddr) -> Caller) -> Option<Seen> {
        let (service, gateway) = self.gateway.start().await?;
        let relay = match self.way.network() {
            Some(network) => {
                let relay = Relay::start(gateway.address(), network).await;
                Some(relay.expect("a free port"))
            }
            None => None,
        };
        let front = relay.as_ref().map_or(gateway.address(), Relay::address);
        let client = client(&service, front);
        let lost = load::drive(client, front, self.load, self.calls).await;
        let seen = Seen {
            scenario: self,
            log: gateway.log(self.calls as usize).await,
            lost,
        };
        say(&seen.to_string());
        Some(seen)
    }
}

// === impl Way ===

impl Way {
    fn network(self) -> Option<Network> {
        let delay = match self {
            Self::Calm => return None,
            Self::Lognormal => "lognormal:10ms:200ms",
            Self::Stalls(stalls) => stalls,
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
    /// Asserts what holds under any load of the machine.
    pub(crate) fn assert_nothing_refused(&self) {
        assert!(self.lost.is_empty(), "{self}: {:?}", self.lost);
        // The automatic burst learns from measured delays. A machine that stalls for seconds has
        // none.
        let by_evidence = match self.scenario.gateway {
            Kind::Nginx { burst } => burst < 49,
            Kind::Haproxy => false,
        };
        let few = if by_evidence {
            self.scenario.calls as usize / 25
        } else {
            0
        };
        assert!(self.log.count(423) <= few, "{self}");
        assert_eq!(self.log.count(416), 0, "{self}");
        assert_eq!(self.log.count(200), self.scenario.calls as usize, "{self}");
        assert!(self.log.largest_estimate() <= 50.0, "{self}");
        assert!(self.log.most_sockets() <= 60, "{self}");
    }

    /// The share of what the limits allow: of 50 a second, or of 60 sockets in use.
    pub(crate) fn utilisation(&self) -> f64 {
        match self.scenario.load {
            Load::Small | Load::Medium => self.log.rate() / 50.0,
            Load::Long => self.log.occupied(60),
        }
    }

    /// The bars of the whole set.
    pub(crate) fn bar(&self) -> f64 {
        match (self.scenario.load, self.scenario.way) {
            (Load::Long, _) => 0.93,
            (_, Way::Calm) => 0.96,
            (_, Way::Lognormal) => 0.89,
            (_, Way::Stalls(_)) => 0.88,
        }
    }
}

impl Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lost, used) = (self.lost.len(), self.utilisation());
        write!(f, "{:?}: {}, {lost} lost; ", self.scenario, self.log)?;
        write!(f, "{used:.3} of the possible (bar {:.2})", self.bar())
    }
}
