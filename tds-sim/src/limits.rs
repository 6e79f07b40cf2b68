//! The limits: connections (416) and requests per second (423) of an IP address, calls of a key
//! (429).

#![warn(clippy::arithmetic_side_effects, clippy::as_conversions)]

use std::{collections::HashMap, net::IpAddr, str::FromStr, sync::Arc, time::Duration};

use crate::{
    rule::{Meter, Rule},
    text::{ParseError, parse_duration, word},
};

/// The number of calls that one key may make in each window of the simulator's clock.
///
/// Written as text it is `CALLS/WINDOW`, such as `20/60s`, or `20/60` in seconds.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tds_sim::Quota;
///
/// let quota: Quota = "1000/3600s".parse()?;
/// assert_eq!(quota, Quota::new(1000, Duration::from_secs(3600)));
/// assert_eq!("1000/3600".parse(), Ok(quota));
/// # Ok::<_, tds_sim::ParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    calls: u32,
    per: Duration,
}

/// Use of the quota by each key.
#[derive(Debug)]
pub(crate) struct Usage {
    quota: Option<Quota>,
    keys: HashMap<Arc<str>, Meter>,
}

/// Definition of a parallel connection. Written as text: `accepted` or `busy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CountConnections {
    /// A socket from its accept until the server closes it, idle or not. While an address has too
    /// many, each of its requests is refused. HAProxy's `conn_cur` counts in this way.
    #[default]
    Accepted,
    /// A request from its count to the end of its answer, as nginx's `limit_conn` counts. Each
    /// stream of an HTTP/2 connection counts as one.
    Busy,
}

/// The limits of an IP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) rule: Rule,
    pub(crate) rate: u32,
    pub(crate) per: Duration,
    pub(crate) connections: u32,
    pub(crate) counting: CountConnections,
}

/// Counts connections and requests by IP address.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: Limits,
    peers: HashMap<IpAddr, Peer>,
    /// When the counts of requests were last set to zero. A call that arrived before ends uncounted.
    since: Duration,
}

/// The gate's answer to an arrival.
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

// === impl Quota ===

impl Quota {
    /// Creates a quota of `calls` in each window of `per`.
    #[must_use]
    pub const fn new(calls: u32, per: Duration) -> Self {
        Self { calls, per }
    }

    /// Returns the seconds to the end of the window, rounded up, so at least one.
    fn seconds_left(self, at: Duration) -> u64 {
        let per = self.per.as_nanos().max(1);
        let left = per.saturating_sub(at.as_nanos().checked_rem(per).unwrap_or(0));
        u64::try_from(left.div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
    }
}

impl FromStr for Quota {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let quota = text.split_once('/').and_then(|(calls, per)| {
            let seconds = per.parse().ok().map(Duration::from_secs);
            let per = seconds.or_else(|| parse_duration(per).ok());
            let per = per.filter(|per| !per.is_zero())?;
            Some(Self::new(calls.parse().ok()?, per))
        });
        quota.ok_or_else(|| ParseError::new("quota", text, "CALLS/WINDOW, such as 20/60s"))
    }
}

// === impl CountConnections ===

impl FromStr for CountConnections {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let words = [("accepted", Self::Accepted), ("busy", Self::Busy)];
        word("definition of a connection", text, &words)
    }
}

// === impl Usage ===

impl Usage {
    /// An unused quota.
    pub(crate) fn of(quota: Option<Quota>) -> Self {
        Self {
            quota,
            keys: HashMap::new(),
        }
    }

    /// Returns the keys with their calls in the current window, and how many they may be.
    pub(crate) fn used_at(&self, now: Duration) -> Vec<(Arc<str>, u32, u32)> {
        let keys = self.quota.iter().flat_map(|quota| {
            let used = |(client, meter): (&Arc<str>, &Meter)| {
                (Arc::clone(client), meter.accepted_at(now), quota.calls)
            };
            self.keys.iter().map(used)
        });
        keys.collect()
    }

    /// Counts a call of `client`.
    ///
    /// # Errors
    /// The seconds to the end of the window, if the quota is used up.
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
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            peers: HashMap::new(),
            since: Duration::ZERO,
        }
    }

    /// Counts requests from zero at `at`, against these limits. Open sockets and calls in progress
    /// still count.
    pub(crate) fn restart(&mut self, limits: Limits, at: Duration) {
        (self.limits, self.since) = (limits, at);
        self.peers
            .retain(|_, peer| peer.sockets > 0 || peer.busy > 0);
        for peer in self.peers.values_mut() {
            peer.meter = limits.rule.meter(limits.rate, limits.per);
        }
    }

    /// Returns the addresses with their sockets and calls in progress.
    pub(crate) fn peers(&self) -> Vec<(IpAddr, u32, u32)> {
        let peers = self.peers.iter();
        peers
            .map(|(ip, peer)| (*ip, peer.sockets, peer.busy))
            .collect()
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

    /// Counts a request at `at`. The connections are checked first. A request refused for them does
    /// not count against the rate.
    pub(crate) fn arrive(&mut self, ip: IpAddr, at: Duration) -> Verdict {
        let (counting, connections) = (self.limits.counting, self.limits.connections);
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
        let limits = self.limits;
        self.peers.entry(ip).or_insert_with(|| Peer {
            sockets: 0,
            busy: 0,
            meter: limits.rule.meter(limits.rate, limits.per),
        })
    }
}
