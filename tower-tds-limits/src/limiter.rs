//! The object that layers, clients and clones share.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    Limits, Rung, Share, WaitCause, clock,
    credential::Credential,
    wait::{Limit as _, Line},
};

/// Keeps whatever shares it inside one set of limits.
///
/// Give clones to as many layers and clients as share an IP address. It can be made outside a
/// runtime. Once a call has had to wait it has one small task in that runtime, which keeps the time
/// and ends with that or with the limiter.
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
    /// What the first request that waits for a permit waits for.
    pub waits_for: Option<WaitCause>,
    /// Sockets between the permit before `connect` and their close.
    pub connections: u32,
    /// How many sockets there may be: [`Limits::connections`], or fewer for a while after the
    /// service has answered 416.
    pub most_connections: u32,
    /// How long it is until connects begin again, if the service has just answered 416.
    pub no_connect_for: Option<Duration>,
    /// Connects that wait for a permit.
    pub connects_waiting: usize,
    /// How careful the limiter is after what it was refused.
    pub rung: Rung,
    /// For how long nothing is sent after a refusal that concerns the IP address.
    pub silent_for: Option<Duration>,
    /// For how long nothing is sent for this credential after a 429, but for one that tries.
    pub paused_for: Option<Duration>,
    /// The most requests that can have been counted in any interval of the first quota so far,
    /// by what was sent when and proven when. By the proof it is never more than the quota.
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

    /// The same limits for another credential: whatever concerns the IP address is shared, and
    /// only the pause after a 429 is each credential's own.
    #[must_use]
    pub fn another_credential(&self) -> Self {
        self.another(self.credential.line)
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
        }
    }

    /// Waits until no request is in flight, of any credential, whether its caller waits for it or
    /// it was detached. What has only been waiting for a permit is not in flight.
    ///
    /// For a shutdown: stop calling, wait for this, and nothing is lost.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn idle(&self) {
        self.credential.account.idle().await;
    }

    /// Keeps within a share of the limits from now on, and grants nothing after `until`.
    ///
    /// A share that grows is usable at once. One that shrinks holds at once for new requests: what
    /// is under way keeps its place until it is proven. An empty share grants nothing.
    pub fn set_share(&self, share: Share, until: Instant) {
        let account = &self.credential.account;
        account.update_now(|account, now| account.set_share(share, until, now));
        let connections = &self.credential.connections;
        connections.update(|connections| connections.set_share(share.connections, until));
    }

    /// The smallest share in which all that was sent fits, without a new request.
    #[must_use]
    pub fn held(&self) -> Share {
        let connections = &self.credential.connections;
        let connections = connections.read(|connections, _| connections.open(clock::now()));
        let account = &self.credential.account;
        let held = account.read(|account, _| account.held(clock::now()));
        Share {
            connections,
            ..held
        }
    }

    /// The limits kept.
    pub fn limits(&self) -> &Limits {
        &self.credential.limits
    }

    /// What is held now. Takes the locks in turn; meant for gauges and tests.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let now = clock::now();
        let left = |until: Option<Instant>| until.map(|until| until.saturating_duration_since(now));
        let credential = &self.credential;
        let paused = credential.paused_until();
        let (connections, most_connections, no_connects, connects_waiting) =
            credential.connections.read(|connections, waiting| {
                let most = connections.most_at(now);
                (
                    connections.open(now),
                    most,
                    connections.silent_until(now),
                    waiting,
                )
            });
        credential.account.read(|account, waiting| Snapshot {
            in_flight: account.in_flight(),
            live: account.live_at(now),
            waiting,
            waits_for: (waiting > 0).then(|| account.cause(Line::Back, now)),
            connections,
            most_connections,
            no_connect_for: left(no_connects),
            connects_waiting,
            rung: account.rung(),
            silent_for: left(account.silent_until(now)),
            paused_for: left(paused),
            certificate: account.certificate(),
            granted: account.granted(),
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
