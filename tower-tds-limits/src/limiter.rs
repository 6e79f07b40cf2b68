//! The limits that layers, clients and clones share.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    account::ladder::Rung,
    clock,
    credential::Credential,
    error::WaitCause,
    limits::Limits,
    wait::{Limit as _, Line},
};

/// Keeps all layers and clients that share it inside one set of limits.
///
/// Give a clone to each layer and client that calls one service from the same IP address. Build
/// another limiter for another host, because each counts for itself. A limiter can be created
/// outside a runtime. The first call that has to wait spawns a small timer task on its runtime. The
/// task ends when no call waits.
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

/// The state of a [`Limiter`] at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Requests between their grant and the end of their bodies. Only requests [first in
    /// line](Limiter::first_in_line) can exceed [`Limits::in_flight`].
    pub in_flight: u32,
    /// Permits of the fullest quota that are live: granted and not yet back.
    pub live: u64,
    /// Requests that wait for a permit, or for the end of this credential's pause.
    pub waiting: usize,
    /// The cause of the wait for a permit, if requests wait. It is that of requests that are not
    /// [first in line](Limiter::first_in_line).
    pub waits_for: Option<WaitCause>,
    /// Sockets between the permit before `connect` and their close.
    pub connections: u32,
    /// The most sockets: [`Limits::connections`] or those of a share, and fewer for a while after a
    /// 416.
    pub most_connections: u32,
    /// Connects that wait for a permit.
    pub connects_waiting: usize,
    /// The rules that refusals led to.
    pub rung: Rung,
    /// The rest of the silence after a 423 or a 416, in which nothing is sent.
    pub silent_for: Option<Duration>,
    /// The rest of this credential's pause after a 429. After the pause it is zero until a response
    /// is accepted, and then `None`.
    pub paused_for: Option<Duration>,
    /// The most requests that the service can have counted in any interval of the first quota so
    /// far, as computed from the times of grants and proofs. Requests never bring it above the quota.
    /// The close of an unused socket can, if it has to be recorded without a permit, for example
    /// because the server closed first or a share ended.
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

    /// Returns the same limits for another credential. Only the pause after a 429 is separate.
    #[must_use]
    pub fn another_credential(&self) -> Self {
        self.another(self.credential.line)
    }

    /// Returns the same limits for token requests, which go before all waiters.
    ///
    /// Use it for the few requests that all others depend on. They have a pause of their own after
    /// a 429. They wait for a permit of each quota, and not for a place in flight, which a download
    /// may hold for long. The number of their sockets bounds how many are in flight. Several of
    /// them are first in, first out.
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

    /// Waits until no request of any credential is in flight, detached ones included. A call that
    /// waits for a permit is not in flight.
    ///
    /// Use it for a graceful shutdown: stop calling, then wait for it.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn idle(&self) {
        self.credential.account.idle().await;
    }

    /// The limits kept.
    pub fn limits(&self) -> &Limits {
        &self.credential.limits
    }

    /// Reads the current state. It takes the locks one after another, and is meant for gauges and
    /// tests.
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
            rung: account.rung(),
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
