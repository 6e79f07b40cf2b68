//! The limiters of one address: the limits divided between data and token calls.
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions)]

use std::{num::NonZeroU32, time::Duration};

use tower_tds_limits::{Limiter, Limits, Quota};

use crate::BuildError;

/// The limits of one IP address, for several clients behind it.
///
/// The service counts by address, whatever key a call has. Only the pause after a 429 is each client's own, and the
/// pool: an idle socket of one makes room for another, and is never used by it.
///
/// # Examples
/// ```
/// use tower_tds::{Client, Credentials, Limits, SharedLimits};
///
/// let limits = SharedLimits::new(Limits::default());
/// let client = |id: &str| {
///     let credentials = Credentials::new(id, "s3cr3t").expect("it can be sent");
///     Client::builder("https://auth.example.org", "https://data.example.org", credentials)
///         .limits(&limits)
/// };
/// let (bus, metro) = (client("bus"), client("metro"));
/// # drop((bus, metro));
/// ```
#[derive(Debug, Clone)]
pub struct SharedLimits(Option<Limiters>);

/// How the connections are divided.
#[derive(Debug, Clone)]
pub(crate) struct Limiters {
    pub(crate) data: Limiter,
    /// For the sockets of token calls alone.
    pub(crate) token_sockets: Limiter,
}

// === impl SharedLimits ===

impl SharedLimits {
    /// Within these limits. At least two connections: what allows fewer is told by
    /// [`Builder::build`](crate::Builder::build).
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self(Limiters::new(limits))
    }

    /// Each client has a credential of its own.
    pub(crate) fn limiters(&self) -> Result<Limiters, BuildError> {
        let limiters = self.0.as_ref().map(Limiters::another_credential);
        limiters.ok_or_else(|| {
            BuildError::new("one connection is for the token endpoint: allow at least two")
        })
    }
}

impl From<Limits> for SharedLimits {
    fn from(limits: Limits) -> Self {
        Self::new(limits)
    }
}

impl From<&Self> for SharedLimits {
    fn from(shared: &Self) -> Self {
        shared.clone()
    }
}

// === impl Limiters ===

impl Limiters {
    /// A token call must never wait for a data socket, and both count at the service: one or two
    /// sockets are the token's, and the data calls have the others. With a second one a socket
    /// whose server has fallen silent, and which counts until it is surely closed, keeps no token
    /// call waiting.
    fn new(limits: Limits) -> Option<Self> {
        let most = limits.connections;
        let tokens = if most < TWO_FROM {
            NonZeroU32::MIN
        } else {
            NonZeroU32::MIN.saturating_add(1)
        };
        let data = NonZeroU32::new(most.get().checked_sub(tokens.get())?)?;
        // Beyond its sockets a call would be let in to wait for one, and that by its timeouts.
        let in_flight = limits.in_flight.min(data);
        Some(Self {
            data: Limiter::new(limits.connections(data).in_flight(in_flight)),
            token_sockets: Limiter::new(Limits::default().connections(tokens)),
        })
    }

    /// For how long a token call may wait for its permit. Nobody goes before it, so that it has to
    /// wait for those of an interval, of which some ways of counting remember two, and for the
    /// slowest of their answers.
    pub(crate) fn longest_turn(&self) -> Duration {
        let intervals = self.data.limits().quotas().iter().map(Quota::per);
        let longest = intervals.max().unwrap_or_default();
        longest.saturating_mul(2).saturating_add(SLOW_ANSWER)
    }

    fn another_credential(&self) -> Self {
        Self {
            data: self.data.another_credential(),
            token_sockets: self.token_sockets.clone(),
        }
    }
}

/// A second socket for tokens is then at most a ninth of what is left for data.
const TWO_FROM: NonZeroU32 = NonZeroU32::MIN.saturating_add(10 - 1);

/// What the limits themselves wait for an answer that does not come: `Limits::lost_after`.
const SLOW_ANSWER: Duration = Duration::from_secs(10);
