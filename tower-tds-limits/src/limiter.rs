//! The limits that layers, clients and clones share.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    account::{Account, Granted},
    clock,
    error::WaitCause,
    limits::{Limits, Quota, Share},
    pause::Pause,
    sockets::Connections,
    wait::{Limit as _, Priority, shared::Shared},
};

/// Keeps all layers and clients that share it inside one set of limits.
///
/// Give a clone to each layer and client that calls one service from the same IP address. For
/// another host, build another limiter: each host counts separately, and under
/// [`Burst::Auto`](crate::Burst::Auto) a response from one host would count as evidence for requests to the
/// other. You can create one outside a runtime: the first call that has to wait spawns a small timer task
/// on its runtime, which ends when no call waits.
///
/// # Clone
/// Clones share everything. After a 429 only the services of one layer pause.
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
    pub(crate) stack: Arc<Stack>,
}

/// One stack, and the limits that it shares with other stacks.
#[derive(Debug, Clone)]
pub(crate) struct Stack {
    pub(crate) priority: Priority,
    pub(crate) account: Arc<Shared<Account>>,
    pub(crate) connections: Arc<Shared<Connections>>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) pause: Arc<Pause>,
    /// Bounds of a layer's calls: see [`RequestLimitLayer`](crate::RequestLimitLayer).
    pub(crate) max_waiting: usize,
    pub(crate) answer: Option<Duration>,
}

/// State of a [`Limiter`].
///
/// # Examples
/// ```
/// use tower_tds_limits::{Limiter, Limits};
///
/// let now = Limiter::new(Limits::default()).snapshot();
/// assert_eq!((now.waiting, now.waits_for), (0, None));
/// // After a refusal one of these is set. The last one is set for the limiter of the refused layer.
/// let is_slowed = [now.lowered_for, now.silent_for, now.paused_for].iter().any(Option::is_some);
/// assert!(!is_slowed && now.most_connections == 60);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Requests in flight: each counts from its permit to the end of its response body. Only
    /// requests [first in line](Limiter::first_in_line) can exceed [`Limits::in_flight`].
    pub in_flight: u32,
    /// Largest number of live permits of any quota. A permit is live from its grant until it comes
    /// back.
    pub live: u64,
    /// Requests of all layers that wait for the inner service, a permit, or the end of a
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
    /// Remaining pause after a 429, if the handle is that of a [layer](crate::RequestLimitLayer::limiter).
    /// After the pause it is zero until a response is accepted, and then `None`.
    pub paused_for: Option<Duration>,
    /// Permits granted so far.
    pub granted: u64,
}

/// What one process holds, and the whole to divide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Load {
    /// Smallest share that covers all open sockets and all requests that still count.
    pub held: Share,
    /// How long a share may still be in use after its end: the longest time until an abandoned
    /// request is counted, plus two intervals. After that the request has no effect on any rule.
    pub counts_for: Duration,
    /// All of the limits as one share, as refusals have lowered them.
    pub whole: Share,
    /// Whether the machine has been suspended since the share was set, which is detected on Linux
    /// only.
    pub was_suspended: bool,
}

// === impl Limiter ===

impl Limiter {
    /// Keeps within `limits`, starting with every permit free.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            stack: Arc::new(Stack {
                priority: Priority::Normal,
                account: Arc::new(Shared::new(Account::new(&limits))),
                connections: Arc::new(Shared::new(Connections::new(&limits))),
                limits: Arc::new(limits),
                pause: Arc::default(),
                max_waiting: usize::MAX,
                answer: None,
            }),
        }
    }

    /// Returns a handle to this limiter for token requests, which go before all waiters.
    ///
    /// Use it for the few requests that all others depend on. They wait for a permit of each quota, but not for a slot among the requests in
    /// flight, which a download may hold for long; only the sockets bound how many are in flight.
    /// They are served in the order of their arrival.
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
        self.another(Priority::High)
    }

    /// Returns a handle with a pause and bounds of its own.
    pub(crate) fn another(&self, priority: Priority) -> Self {
        Self {
            stack: Arc::new(Stack {
                priority,
                pause: Arc::default(),
                max_waiting: usize::MAX,
                answer: None,
                ..Stack::clone(&self.stack)
            }),
        }
    }

    /// Waits until no request is in flight. Those that go on in the background count; calls that wait
    /// for a permit do not.
    ///
    /// Use it for a graceful shutdown: make no further calls, then await this.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::timeout;
    /// use tower_tds_limits::{Limiter, Limits};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limiter = Limiter::new(Limits::default());
    /// // Ten seconds are enough for what goes on in the background.
    /// assert!(timeout(Duration::from_secs(10), limiter.idle()).await.is_ok());
    /// # }
    /// ```
    pub async fn idle(&self) {
        while self.stack.account.read(|account, _| account.in_flight) > 0 {
            sleep(LOOK).await;
        }
    }

    /// Returns the limits that were given to [`new`](Self::new).
    pub fn limits(&self) -> &Limits {
        &self.stack.limits
    }

    /// Reads the current state, for gauges and tests. Its parts may differ by an instant, because it
    /// takes several locks.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let now = clock::now();
        let left = |until: Option<Instant>| until.map(|until| until.saturating_duration_since(now));
        let stack = &self.stack;
        let paused = stack.pause.last().map(|last| last.ends());
        let (connections, most_connections, connects_waiting) =
            stack.connections.read(|connections, waiting| {
                (connections.open(now), connections.most_at(now), waiting)
            });
        stack.account.read(|account, waiting| Snapshot {
            in_flight: account.in_flight,
            live: account.live_at(now),
            waiting,
            waits_for: (waiting > 0).then(|| account.opens(Priority::Normal, now).1),
            connections,
            most_connections,
            connects_waiting,
            quota: account.believed().0,
            lowered_for: left(account.believed().1),
            silent_for: left(account.silent_until(now)),
            paused_for: left(paused),
            granted: account.granted,
        })
    }
}

/// Shares, which you rarely need: tower-tds-fleet divides the limits among processes, and sets them.
impl Limiter {
    /// Uses only a share of the limits from now on, and grants nothing after `until`. Calls that
    /// wait beyond that report the reason in `why`, if there is one.
    ///
    /// A larger share applies at once. A smaller one applies to new requests at once, while those
    /// that were sent keep what they [hold](Load::held). As long as more sockets are open than the
    /// share allows, each request closes its socket (`Connection: close`). With an empty share
    /// nothing is granted.
    ///
    /// No socket is written to after `until`. If that has passed already, this call closes all
    /// sockets. Suspending the machine also ends the share.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    /// use tower_tds_limits::{Limiter, Limits, Share};
    ///
    /// let limiter = Limiter::new(Limits::default()); // of all processes together
    /// let load = limiter.load();
    /// assert!(load.counts_for >= Duration::from_secs(10)); // for which a share stays in use after its end
    /// let whole = load.whole;
    /// let half = Share {
    ///     requests: whole.requests / 2,
    ///     places: whole.places / 2,
    ///     connections: whole.connections / 2,
    /// };
    /// limiter.set_share(half, Instant::now() + Duration::from_secs(5), None);
    /// assert_eq!(limiter.load().held, Share::default());
    /// ```
    pub fn set_share(&self, share: Share, until: Instant, why: Option<&'static str>) {
        let now = clock::now();
        let (open, over) = self.stack.connections.update(|connections| {
            let over = connections.set_share(share.connections, until, now);
            (connections.open(now), over)
        });
        drop(over);
        let set = |account: &mut Account| account.set_share(share, until, why, now, open);
        self.stack.account.update(set);
    }

    /// Reads what this process holds, and the whole to divide.
    #[must_use]
    pub fn load(&self) -> Load {
        let now = clock::now();
        let connections = self.stack.connections.read(|sockets, _| sockets.open(now));
        let counts_for = counts_for(self.limits());
        self.stack.account.read(|account, _| Load {
            held: Share {
                connections,
                ..account.held(now)
            },
            counts_for,
            whole: account.whole(),
            was_suspended: account.was_suspended(clock::suspended()),
        })
    }
}

impl From<Limits> for Limiter {
    fn from(limits: Limits) -> Self {
        Self::new(limits)
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

// === impl Stack ===

impl Stack {
    /// Records a 416. Returns whether it lowers the limit of sockets.
    #[cold]
    pub(crate) fn lower_sockets(&self, now: Instant, grant: Granted) -> bool {
        // Under both locks, so that the sockets end up with the account's last change. This opens nothing, so it wakes
        // no waiter of the account.
        self.connections.update(|sockets| {
            let too_many = grant.has_range || sockets.open(now) > sockets.most_at(now);
            self.account.read(|account, _| {
                let lowers = account.lower_sockets(now, grant, too_many);
                sockets.lowered = account.sockets();
                lowers
            })
        })
    }
}

/// How long a request may count after its process has ended.
fn counts_for(limits: &Limits) -> Duration {
    let longest = limits.quotas().iter().map(Quota::hold).max();
    let intervals = longest.unwrap_or_default().saturating_mul(2);
    limits.lost_after.saturating_add(intervals)
}

/// How often a shutdown looks whether something is in flight, which callers don't notice.
const LOOK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
