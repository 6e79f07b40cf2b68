//! The connection limit: a permit from before `connect` until the server has closed the socket.

mod io;

use std::{
    fmt,
    future::{self, Future, poll_fn},
    io::{self as std_io, ErrorKind},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::rt::{Read, Write};
use tokio::time::timeout;
use tower_layer::Layer;
use tower_service::Service;
use tower_tds_outcome::chain;

pub use self::io::LimitedIo;
use crate::{
    clock,
    error::{BoxError, Decision, Error},
    limiter::Limiter,
    sockets::ConnectionPermit,
    wait::waiter::Waiter,
};

/// Puts [`ConnectionLimit`] around a connector.
///
/// All connectors of one limiter share its limit. Use a limiter that is [first in
/// line](Limiter::first_in_line) for token requests: their connects go first.
///
/// If you build the TCP connector, set its `TCP_USER_TIMEOUT` to [`Limits::lost_after`] at most.
/// Without this option the kernel resends an abandoned request for a quarter of an hour, so after a
/// network outage all of them may arrive at once. Where the system has no such option, make
/// `lost_after` longer than the outages that you expect.
///
/// [`Limits::lost_after`]: crate::Limits::lost_after
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
/// let mut tcp = HttpConnector::new();
/// #[cfg(target_os = "linux")]
/// tcp.set_tcp_user_timeout(Some(limiter.limits().tcp_user_timeout()));
/// let connector = ConnectionLimitLayer::new(limiter).layer(tcp);
/// let client: Client<_, String> = Client::builder(TokioExecutor::new()).build(connector);
/// # drop(client);
/// ```
#[derive(Debug, Clone)]
pub struct ConnectionLimitLayer {
    limiter: Limiter,
}

/// Caps the open sockets of all connectors that share a [`Limiter`].
///
/// Put this service around the TCP connector, *under* TLS and under a proxy's tunnel, because a
/// server counts TCP connections. Each socket holds its permit from before `connect` until the
/// server has closed it, so idle sockets of your pool count.
///
/// Data connections use at most one less than the limit, unless the limit is one: the last one is
/// for token requests, whose layer you build from [`Limiter::first_in_line`].
///
/// | client | where the limit goes |
/// |---|---|
/// | hyper-util `client::legacy` | around the TCP connector |
/// | hyper-rustls | its inner connector: `HttpsConnectorBuilder::wrap_connector` |
/// | `Tunnel` of a proxy | its inner connector |
/// | reqwest | none: its `connector_layer` cannot hold a permit until the socket is closed |
///
/// # Several hosts
/// Idle sockets keep their permits until your pool closes them. Where several hosts share one limit,
/// give the pool a timer and an idle timeout of five seconds:
/// `.pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(5))`. Fairness among hosts
/// is a non-goal.
///
/// # Waits
/// If a connection becomes idle while your pool is still connecting, the pool uses it instead, and the
/// connect may be left waiting for its permit. Therefore each connect waits for at most 35 s. With
/// one host and the default of [`Limits::in_flight`](crate::Limits::in_flight), a request waits that
/// long only if the server does not close its sockets.
///
/// # After a 416
/// For a second nothing is sent. For ten minutes the limit is a sixth lower, and at most as many
/// requests are in flight as data connections may be open. Each further 416 lowers the limit by
/// another sixth, down to a sixth of it. It lowers nothing if it comes within that second, because its
/// request was sent earlier; while more sockets are open than the limit allows; or if its request had a
/// `Range`, because then it is most often about that. This layer does not close
/// open sockets, but each request of the next three seconds closes its own (`Connection: close`).
///
/// # Backpressure
/// `poll_ready` waits for the connector and then for a permit, which the readied instance holds
/// until `call`. If you put a timeout around `call`, it does not include the wait.
///
/// # Cancel safety
/// If you drop a connect, or if it has timed out, its permit is kept for a second, because the server
/// may still accept the connection. The same applies to a readied instance that you drop. A refused
/// connect gives its permit back at once.
///
/// # Clone
/// Clones share the limiter; a clone has no permit and does not wait.
///
/// # Errors
/// Errors are boxed, as pools require. You get an [`Error`] when the wait reaches its 35 s, and otherwise
/// the connector's own error.
///
/// # Panics
/// If you `call` without a `poll_ready` that was ready: "`poll_ready` must return Ready before
/// `call`".
///
/// # Examples
/// See [`ConnectionLimitLayer`].
pub struct ConnectionLimit<C> {
    inner: C,
    limiter: Limiter,
    wait: Option<PendingPermit>,
    /// Set from the end of a wait until `call`.
    ready: Option<Result<ConnectionPermit, Error>>,
}

/// Wait for a permit, in progress.
type PendingPermit = Pin<Box<dyn Future<Output = Result<ConnectionPermit, Error>> + Send + Sync>>;

// === impl ConnectionLimitLayer ===

impl ConnectionLimitLayer {
    /// Limits sockets with `limiter`.
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
            let limiter = &self.limiter;
            let wait = self
                .wait
                .get_or_insert_with(|| Box::pin(permit(limiter.clone())));
            self.ready = Some(ready!(wait.as_mut().poll(cx)));
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
            Some(Ok(mut permit)) => {
                let connecting = self.inner.call(target);
                // If this future is dropped, its permit is kept for a second.
                Box::pin(async move {
                    let error = match connecting.await {
                        Ok(socket) => return Ok(LimitedIo::new(socket, permit)),
                        Err(error) => error.into(),
                    };
                    if is_over(&error) {
                        permit.give_back(clock::now());
                    }
                    Err(error)
                })
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

impl<C: fmt::Debug> fmt::Debug for ConnectionLimit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionLimit")
            .field("inner", &self.inner)
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}

/// Waits for a permit.
///
/// # Errors
/// If the wait has reached its bound.
async fn permit(limiter: Limiter) -> Result<ConnectionPermit, Error> {
    let stack = &limiter.stack;
    let mut waiter = Waiter::new(&stack.connections, stack.priority);
    let passes = poll_fn(|cx| waiter.poll_pass(cx, clock::now(), None, usize::MAX, true));
    if let Ok(Ok(priority)) = timeout(LONGEST_WAIT, passes).await {
        return Ok(ConnectionPermit::new(&stack.connections, priority));
    }
    let (cause, _) = waiter.wait(clock::now());
    Err(Error::new(Decision::TimedOut, cause, Some(LONGEST_WAIT)))
}

/// Whether the error shows that there is no connection, for example because it was refused or the
/// host is unreachable.
///
/// A timeout does not show that, because the server may still accept the connection, and errors of
/// other types prove nothing.
fn is_over(error: &BoxError) -> bool {
    let cause = chain(&**error).find_map(|error| error.downcast_ref::<std_io::Error>());
    cause.is_some_and(|error| error.kind() != ErrorKind::TimedOut)
}

/// Longer than a socket takes to close, so that no request to a single host waits this long.
const LONGEST_WAIT: Duration = Duration::from_secs(35);
