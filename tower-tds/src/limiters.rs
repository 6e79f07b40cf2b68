//! Limits of one address, for its data and token calls.

use std::{num::NonZeroU32, time::Duration};

use tower_tds_limits::{Limiter, Limits, Quota};

/// The limits of one IP address: give them to all of your clients behind it.
///
/// Requests and connections are counted per IP address, for all API keys together. After a 429 only
/// the client that got it pauses, because that quota belongs to its key. Each client has a connection
/// pool of its own.
///
/// # Examples
/// ```
/// use tower_tds::{Client, Credentials, Limits, SharedLimits};
///
/// let limits = SharedLimits::from(Limits::default());
/// let client = |id: &str| {
///     let credentials = Credentials::new(id, "s3cr3t").expect("it can be sent");
///     Client::builder("https://auth.example.org", "https://data.example.org", credentials)
///         .limits(&limits)
/// };
/// let (bus, metro) = (client("bus"), client("metro"));
/// # drop((bus, metro));
/// ```
#[derive(Debug, Clone)]
pub struct SharedLimits(Limiter);

// === impl SharedLimits ===

impl SharedLimits {
    pub(crate) fn limiter(&self) -> &Limiter {
        &self.0
    }
}

/// Creates the limits of one address.
///
/// With two or more connections, one is reserved for token calls. With a single connection, each
/// call opens a new one and closes it, so that a token call gets its turn.
impl From<Limits> for SharedLimits {
    fn from(limits: Limits) -> Self {
        // More calls would wait for a data connection after their timeouts have begun.
        let data = limits.most_connections().get().saturating_sub(1);
        let data = NonZeroU32::new(data).unwrap_or(NonZeroU32::MIN);
        let in_flight = limits.most_in_flight().min(data);
        Self(Limiter::new(limits.in_flight(in_flight)))
    }
}

impl From<&Self> for SharedLimits {
    fn from(shared: &Self) -> Self {
        shared.clone()
    }
}

/// Returns the longest wait of a token call for its permit. The call is first in the queue, so it
/// waits only for permits that are already live: for one interval, or two with some rules, after
/// the slowest response.
pub(crate) fn longest_turn(limits: &Limits) -> Duration {
    let intervals = limits.quotas().iter().map(Quota::per);
    let longest = intervals.max().unwrap_or_default();
    longest.saturating_mul(2).saturating_add(SLOW_ANSWER)
}

/// Default of `Limits::lost_after`, the time for which a lost request counts.
const SLOW_ANSWER: Duration = Duration::from_secs(10);
