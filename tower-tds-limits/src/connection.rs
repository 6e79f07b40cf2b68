//! The connection limit: a permit from before `connect` until the server has closed.

mod io;
pub(crate) mod sockets;

use std::{
    error::Error,
    future::{self, Future, poll_fn},
    io::{self as std_io, ErrorKind},
    iter::successors,
    pin::{Pin, pin},
    task::{Context, Poll, Waker, ready},
};

use hyper::rt::{Read, Write};
use tokio::{
    task,
    time::{Instant, Sleep, sleep_until},
};
use tower_layer::Layer;
use tower_service::Service;

pub use self::io::LimitedIo;
use self::sockets::{ConnectionPermit, Connections};
use crate::{
    LimitError, Limiter, clock,
    wait::{Terms, waiter::Waiter},
};

/// Puts [`ConnectionLimit`] around a connector.
///
/// All connectors of one limiter share its limit. A layer of a limiter that is
/// [first in line](Limiter::first_in_line) is for token requests: its connects go first.
///
/// # Examples
/// TLS goes around it, as in `HttpsConnectorBuilder::wrap_connector` of hyper-rustls.
///
/// ```
/// use hyper_util::{
///     client::legacy::{Client, connect::HttpConnector},
///     rt::TokioExecutor,
/// };
/// use tower_layer::Layer;
/// use tower_tds_limits::{ConnectionLimitLayer, Limiter, Limits};
///
/// let limiter = Limiter::new(Limits::default());
/// let connector = ConnectionLimitLayer::new(limiter).layer(HttpConnector::new());
/// let client: Client<_, String> = Client::builder(TokioExecutor::new()).build(connector);
/// # drop(client);
/// ```
#[derive(Debug, Clone)]
pub struct ConnectionLimitLayer {
    limiter: Limiter,
}

/// Caps the open sockets of every connector that shares a [`Limiter`].
///
/// Put it around the TCP connector, *under* TLS and under a proxy's tunnel, because a server
/// counts TCP connections. A socket holds its permit from before `connect` until the server has
/// closed, so idle sockets of a pool count.
///
/// Data connections use at most one less than the limit, unless the limit is one. The last place is
/// for token requests, whose layer is built from [`Limiter::first_in_line`].
///
/// | client | place of the limit |
/// |---|---|
/// | hyper-util `client::legacy` | around the TCP connector |
/// | hyper-rustls | its inner connector: `HttpsConnectorBuilder::wrap_connector` |
/// | `Tunnel` of a proxy | its inner connector |
/// | reqwest | none: its `connector_layer` cannot hold a permit until the socket is closed |
///
/// # Several hosts
/// An idle socket keeps its permit until its pool closes it. Where several hosts share one limit,
/// give the pool a timer and an idle timeout of five seconds:
/// `.pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(5))`. Fairness among hosts
/// is a non-goal.
///
/// # Abandoned connects
/// If a pool finds a free connection, it moves the connect that it has begun to a separate task.
/// Such a connect ends with an error, at its next poll. It leaves the queue, or is dropped while it
/// connects, because no request waits for it.
///
/// The rule: a connect is abandoned if it is polled by another tokio task *and* with another waker
/// than at first. So a call that is shared (`futures_util::future::Shared`), joined or selected
/// goes on. A call that your program itself moves to another task (polled once, then spawned) fails
/// if it has no connection yet. That failure is a connect error: the request was not sent, and a
/// retry helps.
///
/// # After a 416
/// No connect begins for a second. For ten minutes the limit is a sixth lower, and at most as many
/// requests are in flight as data connections may be open. Each further 416 lowers the limit of
/// connections by another sixth, to one at least. Two kinds of 416 do not lower it: one within that
/// second, because its request was sent earlier, and one that comes while more sockets are open
/// than the limit allows. This layer closes no open socket, but each request of the next three
/// seconds closes its own (`Connection: close`).
///
/// # Backpressure
/// `poll_ready` waits for the connector and then for a permit, which the readied instance holds
/// until `call`. A timeout of `call` does not include the wait.
///
/// # Cancel safety
/// A connect that is dropped, or that timed out, keeps its permit for one second, because the
/// server may still accept it. So does a readied instance that is dropped. A refused connect gives
/// its permit back at once.
///
/// # Clone
/// Clones share the limiter; a clone has no permit and no place in the queue.
///
/// # Errors
/// Errors are boxed, as pools require. The future returns a [`LimitError`] when the wait reached
/// [`Limits::max_wait`](crate::Limits::max_wait) or the connect was abandoned, and otherwise the
/// connector's own error.
///
/// # Panics
/// `call` without a `poll_ready` that was ready: "`poll_ready` must return Ready before `call`".
///
/// # Examples
/// See [`ConnectionLimitLayer`].
#[derive(Debug)]
pub struct ConnectionLimit<C> {
    inner: C,
    limiter: Limiter,
    wait: Option<Wait>,
    /// Set from the end of a wait until `call`.
    ready: Option<Result<ConnectionPermit, LimitError>>,
}

/// One wait for a permit.
#[derive(Debug)]
struct Wait {
    waiter: Waiter<Connections>,
    origin: Option<Origin>,
    since: Instant,
    /// The timer of the longest wait.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Task and waker of a first poll.
///
/// A pool that has found a free connection spawns the connect that it has begun. Then both the task
/// and the waker change. The task alone proves nothing, because several tasks may share a call. The
/// waker alone proves nothing, because a task may move its futures from one combinator to another.
#[derive(Debug)]
struct Origin {
    task: Option<task::Id>,
    waker: Waker,
}

/// Error of a connector, in the form that pools require.
type BoxError = Box<dyn Error + Send + Sync>;

// === impl ConnectionLimitLayer ===

impl ConnectionLimitLayer {
    /// Limits sockets by `limiter`.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self { limiter }
    }
}

impl<C> Layer<C> for ConnectionLimitLayer {
    type Service = ConnectionLimit<C>;

    fn layer(&self, inner: C) -> Self::Service {
        ConnectionLimit {
            inner,
            limiter: self.limiter.clone(),
            wait: None,
            ready: None,
        }
    }
}

// === impl ConnectionLimit ===

impl<C, Target> Service<Target> for ConnectionLimit<C>
where
    C: Service<Target>,
    C::Response: Read + Write + Send + Unpin + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    type Response = LimitedIo<C::Response>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.inner.poll_ready(cx)).map_err(Into::into)?;
        if self.ready.is_none() {
            let wait = self.wait.get_or_insert_with(|| Wait::new(&self.limiter));
            self.ready = Some(ready!(wait.poll(cx, &self.limiter)));
            self.wait = None;
        }
        Poll::Ready(Ok(()))
    }

    #[expect(
        clippy::panic,
        reason = "a call without readiness is a programmer's error"
    )]
    fn call(&mut self, target: Target) -> Self::Future {
        match self.ready.take() {
            Some(Ok(permit)) => {
                let connecting = self.inner.call(target);
                let connecting = async { connecting.await.map_err(Into::into) };
                Box::pin(connect(connecting, permit))
            }
            Some(Err(error)) => Box::pin(future::ready(Err(error.into()))),
            None => panic!("`poll_ready` must return Ready before `call`"),
        }
    }
}

impl<C: Clone> Clone for ConnectionLimit<C> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            limiter: self.limiter.clone(),
            wait: None,
            ready: None,
        }
    }
}

// === impl Wait ===

impl Wait {
    fn new(limiter: &Limiter) -> Self {
        let credential = &limiter.credential;
        Self {
            waiter: Waiter::new(&credential.connections, credential.line),
            origin: None,
            since: clock::now(),
            timer: None,
        }
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// When the longest wait is over, or when the pool has abandoned the connect.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        limiter: &Limiter,
    ) -> Poll<Result<ConnectionPermit, LimitError>> {
        if Origin::is_left(&mut self.origin, cx) {
            return Poll::Ready(Err(LimitError::abandoned()));
        }
        let now = clock::now();
        if let Poll::Ready(Ok(line)) = self.waiter.poll_pass(cx, now, &Terms::NONE) {
            let permit = ConnectionPermit::new(&limiter.credential.connections, line);
            return Poll::Ready(Ok(permit));
        }
        let Some(longest) = limiter.limits().max_wait else {
            return Poll::Pending;
        };
        let waited = now.saturating_duration_since(self.since);
        if waited >= longest {
            let cause = self.waiter.wait(now).cause;
            return Poll::Ready(Err(LimitError::timed_out(cause, waited)));
        }
        // A bound beyond the range of the clock counts as none.
        if let Some(ends) = self.since.checked_add(longest) {
            let timer = self.timer.insert(Box::pin(sleep_until(ends)));
            let _pending = timer.as_mut().poll(cx);
        }
        Poll::Pending
    }
}

// === impl Origin ===

impl Origin {
    /// Whether this poll comes from another task and waker than the first poll. Records the first
    /// poll.
    fn is_left(origin: &mut Option<Self>, cx: &Context<'_>) -> bool {
        let task = task::try_id();
        let first = origin.get_or_insert_with(|| Self {
            task,
            waker: cx.waker().clone(),
        });
        // A pool's executor spawns tokio tasks, so a poll outside of a task (in a `block_on`) is
        // never an abandoned connect.
        task.is_some() && task != first.task && !first.waker.will_wake(cx.waker())
    }
}

/// Connects with a permit, which stays with the socket.
///
/// A permit that is dropped here lingers: see [`ConnectionPermit`].
async fn connect<T>(
    connecting: impl Future<Output = Result<T, BoxError>>,
    permit: ConnectionPermit,
) -> Result<LimitedIo<T>, BoxError>
where
    T: Read + Write + Send + Unpin + 'static,
{
    let mut connecting = pin!(connecting);
    let mut origin = None;
    let connected = poll_fn(|cx| {
        if Origin::is_left(&mut origin, cx) {
            return Poll::Ready(Err(LimitError::abandoned().into()));
        }
        connecting.as_mut().poll(cx)
    });
    match connected.await {
        Ok(socket) => Ok(LimitedIo::new(socket, permit)),
        Err(error) => {
            if is_over(&error) {
                permit.release();
            }
            Err(error)
        }
    }
}

/// Whether the error shows that there is no connection, for example because it was refused or the
/// host is unreachable.
///
/// After a timeout the server may still accept one, and an error of another type proves nothing.
fn is_over(error: &BoxError) -> bool {
    let error: &(dyn Error + 'static) = &**error;
    let mut causes = successors(Some(error), |error| (*error).source());
    let cause = causes.find_map(|error| error.downcast_ref::<std_io::Error>());
    cause.is_some_and(|error| error.kind() != ErrorKind::TimedOut)
}
