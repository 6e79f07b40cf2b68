//! The object that layers, clients and clones share.

use std::{fmt, sync::Arc};

use tokio::time::Instant;

use crate::{
    Limits, Rung, clock,
    connection::ConnectionPermit,
    credential::Credential,
    gate::{Line, Turn},
    request::RequestPermit,
};

/// Keeps whatever shares it inside one set of limits.
///
/// Give clones to as many layers and clients as share an IP address. It has no background task
/// and can be made outside a runtime.
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
    limits: Arc<Limits>,
    credential: Arc<Credential>,
}

/// What a [`Limiter`] holds at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Requests between their grant and the end of their bodies; more than
    /// [`Limits::in_flight`] allows only by those that are
    /// [first in line](Limiter::first_in_line).
    pub in_flight: u32,
    /// Permits of the fullest quota that are live: granted and not yet back.
    pub live: u64,
    /// Requests that wait for a permit, or for the end of this credential's pause.
    pub waiting: usize,
    /// Sockets between the permit before `connect` and their close.
    pub connections: u32,
    /// How many sockets there may be: [`Limits::connections`], or fewer for a while after the
    /// service has answered 416.
    pub most_connections: u32,
    /// When connects begin again, if the service has just answered 416.
    pub no_connect_before: Option<Instant>,
    /// Connects that wait for a permit.
    pub connects_waiting: usize,
    /// How careful the limiter is after what it was refused.
    pub rung: Rung,
    /// Until when nothing is sent after a refusal that concerns the IP address.
    pub silent_until: Option<Instant>,
    /// Until when nothing is sent for this credential after a 429, but for one that tries.
    pub paused_until: Option<Instant>,
    /// The most requests that can have been counted in any interval of the first quota so far,
    /// by what was sent when and proven when. By the proof it is never more than the quota; only
    /// [`Rung::Paced`], which proves nothing, can let it be more.
    pub certificate: u64,
}

// === impl Limiter ===

impl Limiter {
    /// Keeps within `limits`, starting with every permit free.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            credential: Arc::new(Credential::new(&limits)),
            limits: Arc::new(limits),
        }
    }

    /// The same limits for another credential: whatever concerns the IP address is shared, and
    /// only the pause after a 429 is each credential's own.
    #[must_use]
    pub fn another_credential(&self) -> Self {
        self.another(self.credential.line())
    }

    /// The same limits for requests that go before whoever waits for a permit, with a pause of
    /// their own after a 429.
    ///
    /// Meant for the few requests that the others depend on: a token call that stood at the end
    /// of the queue would come after those that it is for. It waits for a permit of each quota as
    /// they do, and not for a place in flight, which a download may hold for long: it takes one
    /// also where none is free. What bounds such requests is the sockets they have. Of several the
    /// last to come is the first.
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
            limits: Arc::clone(&self.limits),
        }
    }

    /// The limits kept.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What is held now. Takes the locks in turn; meant for gauges and tests.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let now = clock::now();
        let connections = self.credential.connections();
        let (connections, most_connections, no_connect_before, connects_waiting) = connections
            .read(|connections, waiting| {
                let (most, silent) = (connections.most_at(now), connections.silent_until(now));
                (connections.open(), most, silent, waiting)
            });
        let (paused_until, pausing) = (self.credential.paused_until(), self.credential.waiting());
        self.credential
            .requests()
            .read(|requests, waiting| Snapshot {
                in_flight: requests.in_flight(),
                live: requests.live_at(now),
                waiting: waiting.saturating_add(pausing),
                connections,
                most_connections,
                no_connect_before,
                connects_waiting,
                rung: requests.rung(),
                silent_until: requests.silent_until(now),
                paused_until,
                certificate: requests.certificate(),
            })
    }

    pub(crate) fn request_turn(&self) -> Turn<RequestPermit> {
        let credential = Arc::clone(&self.credential);
        Turn::new(credential, self.limits.wait())
    }

    pub(crate) fn connection_turn(&self) -> Turn<ConnectionPermit> {
        let connections = Arc::clone(self.credential.connections());
        Turn::new(connections, self.limits.wait())
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("limits", &self.limits)
            .field("now", &self.snapshot())
            .finish_non_exhaustive()
    }
}
