//! The limits of a service: connections, requests in flight, quotas.

mod shares;

use std::{num::NonZeroU32, time::Duration};

pub use self::shares::Share;
use crate::{Burst, Quota, Rules, Rung};

/// The limits a [`Limiter`](crate::Limiter) keeps, as one value.
///
/// The default is the transport data service's limit for each IP address: 50 requests in any second
/// and 60 parallel connections.
///
/// # Examples
/// ```
/// use std::{num::NonZeroU32, time::Duration};
/// use tower_tds_limits::{Limits, Quota};
///
/// let five = NonZeroU32::new(5).expect("5 is not zero");
/// let small_plan = Limits::default()
///     .also(Quota::per_minute(five))
///     .max_wait(Duration::from_secs(90));
/// assert_eq!(small_plan.quotas().len(), 2);
/// ```
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    quotas: Vec<Quota>,
    /// The most requests in flight at once.
    pub in_flight: NonZeroU32,
    /// The most sockets at once.
    pub connections: NonZeroU32,
    /// The ways of counting that the limiter is safe against.
    pub rules: Rules,
    /// The rung to begin on.
    pub start: Rung,
    pub(crate) proof: Proof,
    pub(crate) lost_after: Duration,
    /// How long after a gateway's own response a request may be counted behind it.
    pub(crate) behind: Option<Duration>,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) drained: bool,
}

/// The event that proves that the service has counted a request.
///
/// A permit for the rate is live until the proof has been seen and the interval has passed
/// since. A later proof is safe against more ways of counting and costs throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Proof {
    /// The response head: right for every service that counts arrivals.
    #[default]
    Head,
    /// The end of the response body: right also for a service that counts whatever was in
    /// flight during the interval.
    End,
}

// === impl Limits ===

impl Limits {
    /// Keeps within `quota`, with 60 requests in flight and 60 connections.
    pub fn new(quota: Quota) -> Self {
        Self {
            quotas: vec![quota],
            in_flight: CONNECTIONS,
            connections: CONNECTIONS,
            rules: Rules::default(),
            start: Rung::default(),
            proof: Proof::default(),
            lost_after: LOST_AFTER,
            behind: None,
            max_wait: None,
            drained: false,
        }
    }

    /// Keeps within a further quota as well, by the same window and counter.
    ///
    /// A bucket belongs to quotas of at most a second: beside 10,000 an hour the first calls go at
    /// the full rate. A burst that is [chosen](crate::Burst::Of) also belongs to the quota with the
    /// shortest interval.
    pub fn also(mut self, quota: Quota) -> Self {
        self.quotas.push(quota);
        self
    }

    /// Caps the requests between their grant and the end of their response bodies, but for those
    /// that are [first in line](crate::Limiter::first_in_line).
    pub fn in_flight(mut self, most: NonZeroU32) -> Self {
        self.in_flight = most;
        self
    }

    /// Caps the sockets, counted from before `connect` until they are closed.
    pub fn connections(mut self, most: NonZeroU32) -> Self {
        self.connections = most;
        self
    }

    /// Chooses the ways of counting to be safe against; by default all that are in use.
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Starts on a lower rung of the ladder, for services known to be strict.
    pub fn start_at(mut self, rung: Rung) -> Self {
        self.start = rung;
        self
    }

    /// Chooses what proves that the service has counted a request.
    pub fn proof(mut self, proof: Proof) -> Self {
        self.proof = proof;
        self
    }

    /// Sets for how long a request whose response never came may still be counted.
    ///
    /// A request that was cancelled, timed out or reset is on its way until then; its permit
    /// stays live for this long and the quota's interval more. The default is 10 s.
    pub fn lost_after(mut self, after: Duration) -> Self {
        self.lost_after = after.min(LONGEST_LOST);
        self
    }

    /// Sets how long a request may be counted behind a gateway after its own 502 or 504.
    ///
    /// Use it where a service behind the gateway counts. A gateway's own 503 is read as any other
    /// response.
    ///
    /// By default the server that responds also counts: a 502 proves the count when it comes, and a
    /// 504 a second later.
    pub fn counted_behind(mut self, within: Duration) -> Self {
        self.behind = Some(within.min(LONGEST_LOST));
        self
    }

    /// Begins with every permit of the quotas live for one interval, as if it had just been used.
    ///
    /// Use it for a process that starts within an interval of its predecessor's end, whose requests
    /// it cannot know. It costs the first interval, which begins with the first call.
    pub fn drained(mut self) -> Self {
        self.drained = true;
        self
    }

    /// Bounds the wait for a permit; by default there is no bound.
    ///
    /// Each [`RequestLimitLayer`](crate::RequestLimitLayer) can have a bound of its own.
    ///
    /// A wait that reaches the bound ends in a [`LimitError`](crate::LimitError) of the response
    /// future. The request was not sent, so the call can be made again.
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = Some(wait);
        self
    }

    /// The quotas kept, all of them at once.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// The rules for one of the quotas.
    pub(crate) fn rules_of(&self, quota: &Quota, mut rules: Rules) -> Rules {
        let shortest = self.quotas.iter().all(|other| quota.per() <= other.per());
        let chosen = shortest && rules.bucket != Some(Burst::Auto);
        if quota.per() > Duration::from_secs(1) && !chosen {
            rules.bucket = None;
        }
        rules
    }

    /// How long after a gateway's 504 a request may be counted.
    pub(crate) fn timed_out(&self) -> Duration {
        self.behind.unwrap_or(TIMED_OUT)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(Quota::per_second(REQUESTS))
    }
}

/// Contract, "Limits": 50 parallel requests per second, beyond which the service answers 423.
const REQUESTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(50 - 1);

/// The service behind a gateway may begin a request a moment after the gateway's 504. The second is
/// an assumption, not a proof.
const TIMED_OUT: Duration = Duration::from_secs(1);

/// Contract, "Limits": 60 parallel connections per IP address, beyond which it answers 416.
const CONNECTIONS: NonZeroU32 = NonZeroU32::MIN.saturating_add(60 - 1);

/// Longer than a gateway's own queueing and the retransmissions of a request's first segment
/// (1 + 2 + 4 s on Linux).
const LOST_AFTER: Duration = Duration::from_secs(10);

/// A day; far from overflowing an instant.
const LONGEST_LOST: Duration = Duration::from_secs(24 * 60 * 60);
