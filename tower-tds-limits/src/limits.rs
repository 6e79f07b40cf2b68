//! The limits of a service: connections, requests in flight, quotas, ways of counting, shares.

use std::{num::NonZeroU32, time::Duration};

/// Limits that a [`Limiter`](crate::Limiter) enforces.
///
/// The default is the limit of the public transport data service that this crate was written for: 50
/// requests in any second and 60 parallel connections for each IP address.
///
/// If several processes use one limit without tower-tds-fleet, give each its part of every quota, of the
/// requests in flight, of the connections, and of the ten requests that a bucket takes at once: for `n` of
/// these, set [`Burst::Of(n - 1)`](Burst::Of).
///
/// # Examples
/// ```
/// use std::{num::NonZeroU32, time::Duration};
/// use tower_tds_limits::{Limits, Quota};
///
/// let five = NonZeroU32::new(5).expect("5 is not zero");
/// let five_a_minute = Quota::new(five, Duration::from_secs(60)).expect("a minute is an interval");
/// let small_plan = Limits::default().also(five_a_minute);
/// assert_eq!(small_plan.quotas().len(), 2);
/// assert_eq!(small_plan.most_connections().get(), 60);
/// assert_eq!(small_plan.most_in_flight().get(), 59); // one socket is for tokens
/// ```
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    quotas: Vec<Quota>,
    /// First quota, in whose requests a share is counted.
    pub(crate) first: Quota,
    /// Limit of requests in flight, unless it follows `connections`.
    in_flight: Option<NonZeroU32>,
    /// Limit of sockets.
    pub(crate) connections: NonZeroU32,
    /// Ways of counting that the limiter is safe against.
    pub(crate) rules: Rules,
    pub(crate) proof: Proof,
    /// How long a request whose response never came may still be counted.
    pub(crate) lost_after: Duration,
}

/// Event that proves that the service has counted a request.
///
/// Choose a later proof if you need safety against more ways of counting; it costs throughput,
/// because a permit of a quota is live until one interval after the proof.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tower_tds_limits::{Limits, Proof};
///
/// // This service counts requests in flight, and its gateway may begin one after 20 s.
/// let limits = Limits::default().proof(Proof::End).lost_after(Duration::from_secs(20));
/// assert_eq!(limits.tcp_user_timeout(), Duration::from_secs(20));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Proof {
    /// Response head. This is right for every service that counts arrivals.
    #[default]
    Head,
    /// End of the response body. This is also right for a service that counts all requests in
    /// flight during the interval.
    End,
}

/// Number of requests that may be counted in any interval of a given length.
///
/// Several quotas can apply at once: give each to [`Limits::also`](crate::Limits::also).
///
/// # Examples
/// ```
/// use std::{num::NonZeroU32, time::Duration};
/// use tower_tds_limits::Quota;
///
/// let five = NonZeroU32::new(5).expect("5 is not zero");
/// let plan = Quota::new(five, Duration::from_secs(60)).expect("a minute is an interval");
/// assert_eq!(plan.requests(), five);
/// assert_eq!(Quota::new(five, Duration::ZERO), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    requests: NonZeroU32,
    per: Duration,
}

/// Ways of counting that a limiter is safe against.
///
/// Your service may not document how it counts its "50 per second". By default you are safe against
/// every common way, with two exceptions: a count of the requests in flight (see [`Proof::End`]),
/// and leaky buckets with a burst below nine (above 50 a second: below what the quota allows in
/// 180 ms). Against larger bursts the default relies on evidence: see [`Burst::Auto`]. Fewer rules
/// are faster, but only right if you know how the service counts.
///
/// | rules | safe against | requests a second (quota of 50, responses after 110 ms) |
/// |---|---|---|
/// | [`Rules::window`] | fixed windows, sliding logs, token buckets that hold the quota | 45 |
/// | and [`counter`](Self::counter) | sliding-window counters (HAProxy, CDNs), any alignment | 42 |
/// | and [`bucket`](Self::bucket) | leaky buckets with that burst (nginx `limit_req`) | 42 |
///
/// # Examples
/// ```
/// use tower_tds_limits::{Burst, Limits, Rules};
///
/// // This service is known to keep a sliding log.
/// let limits = Limits::default().rules(Rules::window());
/// // And that one is nginx with `burst=20`.
/// let nginx = Rules { bucket: Some(Burst::Of(20)), ..Rules::default() };
/// # drop((limits, nginx));
/// ```
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Whether the limiter is safe against sliding-window counters, at any alignment of their windows.
    pub counter: bool,
    /// Burst of the leaky buckets that the limiter is safe against, if any: those with at least this one.
    pub bucket: Option<Burst>,
}

/// How many requests beyond its steady rate a leaky bucket takes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Burst {
    /// This burst; your safety is proven. Each request keeps its place in the bucket until its
    /// proof. If more responses than the burst are slow at the same time, all your other calls
    /// wait.
    Of(u32),
    /// As many as the quota allows in 180 ms, and at least nine; your safety rests on evidence.
    ///
    /// Responses free the places of the requests that were granted before them, so slow calls
    /// cost the others nothing. Up to 50 a second the burst is nine, and a bucket of ten may refuse
    /// only if the network stalls for longer than three seconds, or in one direction. Above 50 a
    /// second, use [`Of`](Self::Of) if your service's bucket may be smaller: at 1,000 a second,
    /// `Auto` sends 180 at once. It applies to quotas whose interval is at most a second.
    ///
    /// A hundred random buckets of ten or eleven, behind random networks, refused 3 of 10,000,000 calls
    /// (`RULES_CALLS=100000 cargo test --release -p tower-tds --test rules random`). Where response heads
    /// arrive while their bodies stall, up to 580 of 100,000 were refused.
    Auto,
}

/// Part of the limits that one of several processes may use.
///
/// For each process take the larger of its share and what it [holds](crate::Load::held). If the sum of
/// these never exceeds the [whole](crate::Load::whole), all processes together keep within the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// Requests of the first quota. Each other quota is divided in proportion.
    pub requests: u32,
    /// Requests that a leaky bucket takes at once: its burst and one more. Under
    /// [`Burst::Auto`](crate::Burst::Auto) they bound the requests without evidence that they were
    /// counted. This includes probes: the extra requests that are sent while no response comes.
    pub places: u32,
    /// Open sockets.
    pub connections: u32,
}

// === impl Limits ===

impl Limits {
    /// Keeps within `quota`, with 60 connections and 59 requests in flight.
    pub fn new(quota: Quota) -> Self {
        Self {
            quotas: vec![quota],
            first: quota,
            in_flight: None,
            connections: CONNECTIONS,
            rules: Rules::default(),
            proof: Proof::default(),
            lost_after: LOST_AFTER,
        }
    }

    /// Adds another quota, with a window and a counter of its own.
    ///
    /// Buckets apply only to quotas whose interval is at most a second, so a quota of 10,000 an hour
    /// does not space your calls over the hour. If you give a burst
    /// ([`Burst::Of`](crate::Burst::Of)), it also applies to the quota with the shortest interval,
    /// however long that is.
    pub fn also(mut self, quota: Quota) -> Self {
        self.quotas.push(quota);
        self
    }

    /// Caps the requests in flight: each counts from the moment it gets its permit until the end of
    /// its response body. Requests that are [first in line](crate::Limiter::first_in_line) are not
    /// capped.
    ///
    /// By default it is one less than the [connections](Self::connections), and at least one: as
    /// many as there are sockets for data, so that with one host no request waits for a socket
    /// after it has its permit. Give more only to a client that multiplexes (HTTP/2). You may call
    /// this before or after `connections`.
    pub fn in_flight(mut self, most: NonZeroU32) -> Self {
        self.in_flight = Some(most);
        self
    }

    /// Caps the sockets, from before `connect` until they are closed. Unless you set
    /// [`in_flight`](Self::in_flight), this also caps the requests in flight.
    pub fn connections(mut self, most: NonZeroU32) -> Self {
        self.connections = most;
        self
    }

    /// Sets the ways of counting that you want to be safe against; [`Rules::default`] by default.
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Sets what proves that the service has counted a request; [`Proof::Head`] by default.
    pub fn proof(mut self, proof: Proof) -> Self {
        self.proof = proof;
        self
    }

    /// Sets for how long a request whose response never came may still be counted.
    ///
    /// Until then, a request that was cancelled or reset, or that has timed out here or at a gateway
    /// (504), may be on its way, so its permit stays live for this time and one interval of the quota.
    /// By default it is 10 s; more than a day counts as a day.
    ///
    /// Your kernel must not resend for longer: if you build the TCP connector, set its
    /// `TCP_USER_TIMEOUT` to this value or less (see
    /// [`ConnectionLimitLayer`](crate::ConnectionLimitLayer)).
    pub fn lost_after(mut self, after: Duration) -> Self {
        self.lost_after = after.min(LONGEST_LOST);
        self
    }

    /// Returns the quotas, which all apply at once.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// Returns the limit of requests in flight: see [`in_flight`](Self::in_flight).
    #[must_use]
    pub fn most_in_flight(&self) -> NonZeroU32 {
        // The last socket is for a token request.
        let data = || NonZeroU32::new(self.connections.get() - 1);
        self.in_flight.or_else(data).unwrap_or(NonZeroU32::MIN)
    }

    /// Returns the limit of sockets: see [`connections`](Self::connections).
    #[must_use]
    pub fn most_connections(&self) -> NonZeroU32 {
        self.connections
    }

    /// Returns the `TCP_USER_TIMEOUT` that your connector needs:
    /// [`lost_after`](Self::lost_after), but at least a millisecond. Without it, the kernel may send
    /// an abandoned request after a network outage, long after the limiter has forgotten it.
    #[must_use]
    pub fn tcp_user_timeout(&self) -> Duration {
        self.lost_after.max(Duration::from_millis(1))
    }

    /// Returns the rules for one of the quotas.
    pub(crate) fn rules_of(&self, quota: &Quota) -> Rules {
        let mut rules = self.rules;
        let chosen = self.is_shortest(*quota) && rules.bucket != Some(Burst::Auto);
        if quota.per() > Duration::from_secs(1) && !chosen {
            rules.bucket = None;
        }
        rules
    }

    /// Whether no other quota has a shorter interval.
    pub(crate) fn is_shortest(&self, quota: Quota) -> bool {
        self.quotas.iter().all(|other| quota.per() <= other.per())
    }
}

// === impl Burst ===

impl Burst {
    /// Returns the burst of a bucket of this quota, without probes.
    pub(crate) fn beside(self, quota: Quota) -> u32 {
        match self {
            Self::Of(burst) => burst,
            Self::Auto => {
                let requests = u128::from(quota.requests.get()) * AUTO.as_nanos();
                let requests = requests / quota.per.as_nanos().max(1);
                u32::try_from(requests).unwrap_or(u32::MAX).max(LEAST)
            }
        }
    }

    /// Returns the places of such a bucket: the requests that it takes at once, which are the burst and one more.
    /// An automatic burst leaves one for a probe.
    pub(crate) fn places(self, quota: Quota) -> u32 {
        let probe = u32::from(self == Self::Auto);
        self.beside(quota).saturating_add(1 + probe)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(Quota::per_second(REQUESTS))
    }
}

// === impl Quota ===

impl Quota {
    /// Allows `requests` in any interval of the length `per`.
    ///
    /// Returns `None` if `per` is zero or longer than 366 days.
    #[must_use]
    pub const fn new(requests: NonZeroU32, per: Duration) -> Option<Self> {
        if per.is_zero() || per.as_secs() > LONGEST_PER.as_secs() {
            None
        } else {
            Some(Self { requests, per })
        }
    }

    /// Allows `requests` in any second.
    #[must_use]
    pub const fn per_second(requests: NonZeroU32) -> Self {
        Self {
            requests,
            per: Duration::from_secs(1),
        }
    }

    /// Returns the number of requests that an interval allows.
    #[must_use]
    pub const fn requests(&self) -> NonZeroU32 {
        self.requests
    }

    /// Returns the length of the interval.
    #[must_use]
    pub const fn per(&self) -> Duration {
        self.per
    }

    /// Returns how long a permit stays live after the proof: the interval and a margin for two
    /// clocks that disagree.
    #[must_use]
    pub fn hold(&self) -> Duration {
        self.per + TICK_GUARD + self.per / RATE_GUARD
    }

    /// Returns the time between requests that are evenly spaced, with the guard.
    pub(crate) fn spacing(&self) -> Duration {
        let nanos = self.hold().as_nanos();
        let nanos = nanos.div_ceil(u128::from(self.requests.get()));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

// === impl Rules ===

impl Rules {
    /// Returns the window rule alone: at most the quota's permits are live at any grant.
    pub const fn window() -> Self {
        Self {
            counter: false,
            bucket: None,
        }
    }
}

/// All three rules, with an automatic burst.
impl Default for Rules {
    fn default() -> Self {
        Self {
            counter: true,
            bucket: Some(Burst::Auto),
        }
    }
}

// === impl Share ===

impl Share {
    /// Whether some rule grants nothing.
    pub(crate) fn is_empty(self, limits: &Limits) -> bool {
        let part = |quota: &Quota| self.requests_of(*quota, limits.first);
        self.places == 0 || limits.quotas.iter().any(|quota| part(quota) == 0)
    }

    /// Returns the part of `quota`; `first` is the whole first quota. It is at least one request,
    /// because a bucket of rate zero never drains.
    pub(crate) fn part(self, quota: Quota, first: Quota) -> Quota {
        let part = u32::try_from(self.requests_of(quota, first)).unwrap_or(u32::MAX);
        let requests = NonZeroU32::new(part).unwrap_or(NonZeroU32::MIN);
        Quota { requests, ..quota }
    }

    fn requests_of(self, quota: Quota, first: Quota) -> u64 {
        let [whole, first] = [quota, first].map(|quota| u64::from(quota.requests().get()));
        whole * u64::from(self.requests) / first
    }
}

/// Contract of the transport data service, "Limits": 50 parallel requests per second, beyond which
/// it answers 423.
const REQUESTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(50 - 1);

/// From the same page, "Limits": 60 parallel connections per IP address, beyond which it answers
/// 416.
const CONNECTIONS: NonZeroU32 = NonZeroU32::MIN.saturating_add(60 - 1);

/// Longer than a gateway's own queueing and the retransmissions of a request's first segment
/// (1 + 2 + 4 s on Linux).
const LOST_AFTER: Duration = Duration::from_secs(10);

/// A day, which is far from overflowing an instant.
const LONGEST_LOST: Duration = Duration::from_secs(24 * 60 * 60);

/// Covers a server that keeps time in milliseconds, rounded up or down, and half a millisecond
/// more. For an interval of a second, this and [`RATE_GUARD`] add up to 2 ms.
const TICK_GUARD: Duration = Duration::from_micros(1_500);

/// One part in 2,000: clocks may run 500 ppm apart, the most that NTP corrects by slewing.
const RATE_GUARD: u32 = 2_000;

/// Longer than the interval of any plan, and far from overflowing an instant.
const LONGEST_PER: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// One less than the usual burst of gateways: the examples of nginx have 5 to 20, with ten in the
/// middle.
const LEAST: u32 = 9;

/// Time whose requests an automatic burst holds. At 50 a second they are nine. Evidence comes 150 ms
/// after a grant at the earliest, so less would leave a part of the quota unused.
const AUTO: Duration = Duration::from_millis(180);

#[cfg(test)]
mod tests;
