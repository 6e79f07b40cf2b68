//! Limits: connections (416) and requests per second (423) of an IP address, calls of a key (429).

#![warn(clippy::arithmetic_side_effects, clippy::as_conversions)]

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use crate::{
    config::{Config, CountConnections, Quota},
    rule::{Meter, Rule},
};

/// How much of the quota each key has used.
#[derive(Debug)]
pub(crate) struct Usage {
    quota: Option<Quota>,
    keys: HashMap<Arc<str>, Meter>,
}

/// Counts connections and requests by IP address.
#[derive(Debug)]
pub(crate) struct Gate {
    config: Arc<Config>,
    pub(crate) peers: HashMap<IpAddr, Peer>,
    /// When the counts of requests were last set to zero. The end of a call that arrived before
    /// that is not counted.
    since: Duration,
}

/// Answer of the gate to an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Admitted,
    TooManyConnections,
    TooFast,
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) sockets: u32,
    pub(crate) busy: u32,
    meter: Meter,
}

// === impl Usage ===

impl Usage {
    /// Returns an unused quota.
    pub(crate) fn of(quota: Option<Quota>) -> Self {
        Self {
            quota,
            keys: HashMap::new(),
        }
    }

    /// Returns the keys with their calls in the current window.
    pub(crate) fn used_at(&self, now: Duration) -> impl Iterator<Item = (&str, u32)> {
        let keys = self.keys.iter();
        keys.map(move |(client, meter)| (&**client, meter.accepted_at(now)))
    }

    /// Counts a call of `client`.
    ///
    /// # Errors
    /// Fails with the seconds to the end of the window, if the quota is used up.
    pub(crate) fn call(&mut self, client: &Arc<str>, at: Duration) -> Result<(), u64> {
        let Some(quota) = self.quota else {
            return Ok(());
        };
        let meter = self
            .keys
            .entry(Arc::clone(client))
            .or_insert_with(|| Rule::FixedWindow.meter(quota.calls, quota.per));
        if meter.arrive(at) {
            Ok(())
        } else {
            Err(quota.seconds_left(at))
        }
    }
}

// === impl Gate ===

impl Gate {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            peers: HashMap::new(),
            since: Duration::ZERO,
        }
    }

    /// Counts requests from zero at `at`, against these limits. Open sockets and calls in progress
    /// still count.
    pub(crate) fn restart(&mut self, config: Arc<Config>, at: Duration) {
        (self.config, self.since) = (config, at);
        self.peers
            .retain(|_, peer| peer.sockets > 0 || peer.busy > 0);
        for peer in self.peers.values_mut() {
            peer.meter = meter(&self.config);
        }
    }

    /// Counts an accepted socket.
    pub(crate) fn open(&mut self, ip: IpAddr) {
        let peer = self.peer(ip);
        peer.sockets = peer.sockets.saturating_add(1);
    }

    /// Stops counting a socket that is about to close.
    pub(crate) fn close(&mut self, ip: IpAddr) {
        let peer = self.peer(ip);
        peer.sockets = peer.sockets.saturating_sub(1);
    }

    /// Counts a request at `at`. Connections are checked first, so a request that is refused
    /// because of them does not count against the rate.
    pub(crate) fn arrive(&mut self, ip: IpAddr, at: Duration) -> Verdict {
        let (counting, connections) = (self.config.counting, self.config.connections);
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

    /// Records that a request admitted at `arrived` ended at `at`.
    pub(crate) fn leave(&mut self, ip: IpAddr, arrived: Duration, at: Duration) {
        let since = self.since;
        let peer = self.peer(ip);
        peer.busy = peer.busy.saturating_sub(1);
        if arrived >= since {
            peer.meter.end(arrived, at);
        }
    }

    fn peer(&mut self, ip: IpAddr) -> &mut Peer {
        let config = &self.config;
        self.peers.entry(ip).or_insert_with(|| Peer {
            sockets: 0,
            busy: 0,
            meter: meter(config),
        })
    }
}

fn meter(config: &Config) -> Meter {
    config.rule.meter(config.rate, config.per)
}
