//! The two limits per IP address: parallel connections (416) and requests per second (423).

use std::{collections::HashMap, net::IpAddr, time::Duration};

use crate::{
    config::{Config, CountConnections},
    rule::{Meter, Rule},
};

/// Counts connections and requests by IP address.
#[derive(Debug)]
pub(crate) struct Gate {
    rule: Rule,
    rate: u32,
    per: Duration,
    connections: u32,
    counting: CountConnections,
    peers: HashMap<IpAddr, Peer>,
}

/// What the gate says to an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Admitted,
    TooManyConnections,
    TooFast,
}

#[derive(Debug)]
struct Peer {
    sockets: u32,
    busy: u32,
    meter: Meter,
}

// === impl Gate ===

impl Gate {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            rule: config.rule,
            rate: config.rate,
            per: config.per,
            connections: config.connections,
            counting: config.counting,
            peers: HashMap::new(),
        }
    }

    /// A socket was accepted.
    pub(crate) fn open(&mut self, ip: IpAddr) {
        let peer = self.peer(ip);
        peer.sockets = peer.sockets.saturating_add(1);
    }

    /// A socket is being closed.
    pub(crate) fn close(&mut self, ip: IpAddr) {
        let peer = self.peer(ip);
        peer.sockets = peer.sockets.saturating_sub(1);
    }

    /// A request is counted at `at`: first the connections, then, if those are few enough, the
    /// rate. A request refused for its connections is not shown to the rate's meter.
    pub(crate) fn arrive(&mut self, ip: IpAddr, at: Duration) -> Verdict {
        let (counting, connections) = (self.counting, self.connections);
        let peer = self.peer(ip);
        let too_many = match counting {
            CountConnections::Accepted => peer.sockets > connections,
            CountConnections::Busy => peer.busy >= connections,
        };
        if too_many {
            Verdict::TooManyConnections
        } else if peer.meter.arrive(at) {
            peer.busy = peer.busy.saturating_add(1);
            Verdict::Admitted
        } else {
            Verdict::TooFast
        }
    }

    /// A request admitted at `arrived` ended at `at`.
    pub(crate) fn leave(&mut self, ip: IpAddr, arrived: Duration, at: Duration) {
        let peer = self.peer(ip);
        peer.busy = peer.busy.saturating_sub(1);
        peer.meter.end(arrived, at);
    }

    fn peer(&mut self, ip: IpAddr) -> &mut Peer {
        let (rule, rate, per) = (self.rule, self.rate, self.per);
        self.peers.entry(ip).or_insert_with(|| Peer {
            sockets: 0,
            busy: 0,
            meter: rule.meter(rate, per),
        })
    }
}
