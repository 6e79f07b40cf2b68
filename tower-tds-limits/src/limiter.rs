//! The limits that layers, clients and clones share.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    clock,
    credential::Credential,
    error::WaitCause,
    limits::{Limits, Quota},
    wait::{Limit as _, Line},
};

/// Keeps all layers and clients that share it inside one set of limits.
///
/// Give a clone to each layer and client that calls one service from the same IP address. For
/// another host, build another limiter, because each host counts separately. You can create one
/// outside a runtime: the first call that has to wait spawns a small timer task on its runtime,
/// which ends when no call waits.
///
/// # Clone
/// Clones share everything.
///
/// # Examples
/// ```
/// use tower_tds_limits::{Limiter, Limits};
///
/// let limiter = Limiter::new(Limits::default());
/// assert_eq!(limiter.snapshot().connections, 0);
/// ```
#[derive(Clone)]
pub struct Limiter {
    pub(crate) credential: Arc<Credential>,
}

/// State of a [`Limiter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Requests in flight: each counts from its permit to the end of its response body. Only
    /// requests [first in line](Limiter::first_in_line) can exceed [`Limits::in_flight`].
    pub in_flight: u32,
    /// Largest number of live permits of any quota. A permit is live from its grant until it comes
    /// back.
    pub live: u64,
    /// Requests of all credentials that wait for the inner service, a permit, or the end of a
    /// pause.
    pub waiting: usize,
    /// Cause of the wait for a permit, if requests wait. Requests that are [first in
    /// line](Limiter::first_in_line) may wait for another cause.
    pub waits_for: Option<WaitCause>,
    /// Sockets, each from its permit before `connect` until it is closed.
    pub connections: u32,
    /// Limit of sockets: [`Limits::connections`] or that of a share, and lower for a while after a
    /// 416.
    pub most_connections: u32,
    /// Connects that wait for a permit.
    pub connects_waiting: usize,
    /// First quota as it applies now: the part that a share and refusals leave of it.
    pub quota: Quota,
    /// How long requests are evenly spaced at least, because of a 423: until ten minutes after the
    /// last. Then the first accepted response restores the quota.
    pub lowered_for: Option<Duration>,
    /// Remaining silence after a 423 or a 416, in which nothing is sent.
    pub silent_for: Option<Duration>,
    /// Remaining pause of this credential after a 429. After the pause it is zero until a response is
    /// accepted, and then `None`.
    pub paused_for: Option<Duration>,
    /// Largest number of requests that the service can have counted in any interval of the first
    /// quota so far, computed from the times of grants and proofs. Your requests never bring it
    /// above the quota. Closing an [unused socket](crate::ConnectionLimit#unused-sockets) can, if its
    /// close has to be recorded without a permit, for example because the server closed first.
    pub certificate: u64,
    /// Permits granted so far.
    pub granted: u64,
}

// === impl Limiter ===

impl Limiter {
    /// Keeps within `limits`, starting with every permit free.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            credential: Arc::new(Credential::new(limits)),
        }
    }

    /// Returns a handle to this limiter for another credential. Only its pause after a 429 is
    /// separate.
    #[must_use]
    pub fn another_credential(&self) -> Self {
        self.another(self.credential.line)
    }

    /// Returns a handle to this limiter for token requests, which go before all waiters.
    ///
    /// Use it for the few requests that all others depend on. After a 429 they have a pause of
    /// their own. They wait for a permit of each quota, but not for a place among the requests in
    /// flight, which a download may hold for long; only the sockets bound how many are in flight.
    /// They are served first in, first out.
    ///
    /// # Examples
    /// ```
    /// use tower_tds_limits::{Limiter, Limits, RequestLimitLayer};
    ///
    /// let data = Limiter::new(Limits::default());
    /// let tokens = data.first_in_line();
    /// let layers = (RequestLimitLayer::new(data), RequestLimitLayer::new(tokens));
    /// # drop(layers);
    /// ```
    #[must_use]
    pub fn first_in_line(&self) -> Self {
        self.another(Line::Front)
    }

    fn another(&self, line: Line) -> Self {
        Self {
            credential: Arc::new(self.credential.another(line)),
        }
    }

    /// Waits until no request of any credential is in flight. Detached ones count; calls that wait
    /// for a permit do not.
    ///
    /// Use it for a graceful shutdown: make no further calls, then await this.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn idle(&self) {
        self.credential.account.idle().await;
    }

    /// Returns the limits that were given to [`new`](Self::new).
    pub fn limits(&self) -> &Limits {
        &self.credential.limits
    }

    /// Reads the current state, for gauges and tests. Its parts may differ by an instant, because it
    /// takes several locks.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let now = clock::now();
        let left = |until: Option<Instant>| until.map(|until| until.saturating_duration_since(now));
        let credential = &self.credential;
        let paused = credential.paused_until();
        let (connections, most_connections, connects_waiting) =
            credential.connections.read(|connections, waiting| {
                (connections.open(now), connections.most_at(now), waiting)
            });
        credential.account.read(|account, waiting| Snapshot {
            in_flight: account.in_flight,
            live: account.live_at(now),
            waiting,
            waits_for: (waiting > 0).then(|| account.cause(Line::Back, now)),
            connections,
            most_connections,
            connects_waiting,
            quota: account.believed().0,
            lowered_for: left(account.believed().1),
            silent_for: left(account.silent_until(now)),
            paused_for: left(paused),
            certificate: account.certificate(),
            granted: account.granted,
        })
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("limits", self.limits())
            .field("now", &self.snapshot())
            .finish_non_exhaustive()
    }
}
