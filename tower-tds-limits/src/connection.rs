//! The connection limit: a permit from before `connect` until the server has closed.

mod background;
mod closing;
mod connecting;
mod handle;
mod io;
mod permit;
mod refusals;
mod sockets;
mod track;
mod usage;

use std::{
    future::{Future, ready},
    pin::Pin,
    task::{Context, Poll},
};

use hyper::rt::{Read, Write};
use tower_layer::Layer;
use tower_service::Service;

use self::{background::Begun, connecting::Connect, permit::wake};
pub use self::{
    background::{Background, BackgroundTask},
    io::LimitedIo,
    track::{Track, TrackFuture},
};
pub(crate) use self::{handle::Exchange, permit::ConnectionPermit, sockets::Connections};
use crate::{
    LimitError, Limiter,
    queue::{Line, Queue, Readiness},
    request::held,
};

/// Puts [`ConnectionLimit`] around a connector.
///
/// Every connector the layer makes shares the limiter. See [`ConnectionLimit`] for the contract.
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

/// Keeps sockets inside a [`Limiter`]'s limit, from before `connect` until they are closed.
///
/// Put it around the TCP connector, *under* TLS and under a proxy's tunnel: what a server counts is
/// the TCP connection, whatever TLS makes of it. A pool opens more sockets than there are
/// requests, and idle ones count: only a permit inside the socket's own object can bound them.
///
/// # Backpressure
/// `poll_ready` waits for a permit, which the readied instance holds until `call`; connect
/// timeouts that time `call` do not include the wait.
///
/// # Reclaim
/// While a connect waits, the socket that has been idle for longest makes room for it: a read returns the end of the
/// stream, and its pool drops it. A server that has not closed after 80 ms is not awaited: the next idle socket makes
/// room, too. A pool that always has a next request for a socket keeps it: a connect of another host waits until a
/// socket is idle.
///
/// A socket is idle when the body of its last answer has ended, and nothing has been written since for 20 ms. The
/// answers show that: [`connected`] carries an extra that the hyper-util client copies into each response, and that
/// [`RequestLimit`](crate::RequestLimit) or [`Track`](crate::Track) reads. A socket whose answers pass neither is
/// busy until its pool or its server closes it. So are sockets of HTTP/2 and upgraded ones, from their first answer on.
///
/// A socket that a pool has opened ahead of a request makes room like an idle one, and any other unused one after 5 s.
/// So does, after 5 s without a write, an upload that was answered early.
///
/// A request that meets a socket which makes room was never sent. A pool tries it again
/// (`retry_canceled_requests` of the hyper-util client, on by default).
///
/// # After a 416
/// A 416 means that another client behind the address holds connections, or that the service counts ended ones for
/// longer. Its socket is closed. For a second nothing is sent, no connect begins, and idle sockets are closed. For ten
/// minutes a sixth fewer connections are allowed, and connects begin 100 ms apart.
///
/// # Clients
/// | client | place of the limit |
/// |---|---|
/// | hyper-util `client::legacy` | around the TCP connector, with [`Background`](crate::Background) around the executor |
/// | hyper-rustls | its inner connector: `HttpsConnectorBuilder::wrap_connector` |
/// | `Tunnel` of a proxy | its inner connector |
/// | reqwest | none: its `connector_layer` cannot hold a permit until the socket is closed |
///
/// Put a [`Track`](crate::Track) right around the client where a layer between it and the request limit makes errors
/// of some answers, as a classifier does: `.layer_fn(Track::new)`.
///
/// # Cancel safety
/// Dropping a readied instance gives the permit back at once. Dropping the future or the socket
/// ends this side, and gives the permit back when the server has ended its own: a server counts
/// a connection until then, also after a handshake that failed, and one whose connect has timed
/// out may be accepted yet: both are awaited for 30 s at most. A download that goes on all the same
/// is reset.
///
/// # Clone
/// Clones share the limiter; a clone has no permit and no place in the queue.
///
/// # Errors
/// Boxed, as a pool asks of its connector. The future gives a [`LimitError`] when the wait reached
/// [`Limits::max_wait`](crate::Limits::max_wait), or when nobody waits for the connection any
/// more (see [`Background`](crate::Background)), and otherwise the connector's own error.
///
/// # Panics
/// `call` panics with "`poll_ready` must give Ready before `call`" if that was not so.
///
/// # Examples
/// See [`ConnectionLimitLayer`](crate::ConnectionLimitLayer).
///
/// [`connected`]: hyper_util::client::legacy::connect::Connection::connected
#[derive(Debug)]
pub struct ConnectionLimit<C> {
    inner: C,
    readiness: Readiness<Connections>,
    /// There from the first look at readiness until the call.
    begun: Option<Begun>,
}

/// What a pool takes as a connector's error.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

// === impl ConnectionLimitLayer ===

impl ConnectionLimitLayer {
    /// Limits by `limiter`.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self { limiter }
    }
}

impl<C> Layer<C> for ConnectionLimitLayer {
    type Service = ConnectionLimit<C>;

    fn layer(&self, inner: C) -> Self::Service {
        let queue = &self.limiter.credential.connections;
        let max_wait = self.limiter.limits().max_wait;
        ConnectionLimit {
            inner,
            readiness: Readiness::new(queue, Line::Back, max_wait),
            begun: None,
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
        let begun = *self.begun.get_or_insert_with(|| {
            held(true);
            Begun::here()
        });
        let mut inner_waits = false;
        let ready = self.readiness.poll_ready(cx, |cx| {
            let ready = self.inner.poll_ready(cx);
            inner_waits = ready.is_pending();
            ready
        });
        if ready.is_pending() && !inner_waits {
            if !begun.is_orphaned() {
                return Poll::Pending;
            }
            // Its request has got another socket, of its pool.
            self.readiness.refuse(LimitError::orphaned());
            return Poll::Ready(Ok(()));
        }
        ready.map_err(Into::into)
    }

    fn call(&mut self, target: Target) -> Self::Future {
        let begun = self.begun.take().unwrap_or_else(Begun::here);
        match self.readiness.take() {
            Ok(()) => {
                let permit = ConnectionPermit::connecting(self.readiness.queue());
                let connecting = self.inner.call(target);
                let connecting = Box::pin(async { connecting.await.map_err(Into::into) });
                Box::pin(Connect::new(connecting, permit, begun))
            }
            Err(error) => Box::pin(ready(Err(error.into()))),
        }
    }
}

impl<C: Clone> Clone for ConnectionLimit<C> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            readiness: self.readiness.clone(),
            begun: None,
        }
    }
}

/// The service has answered that there are too many connections.
pub(crate) fn refused(queue: &Queue<Connections>) {
    wake(queue.update_now(Connections::refused));
}
