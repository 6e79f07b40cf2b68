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
mod waiting;

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
/// While a connect waits, the socket that has been idle for longest makes room for it: reading it
/// gives the end of the stream, and its pool drops it. So idle sockets of one host or client never
/// starve another, whatever timeouts the pool has. A server that has not closed after 80 ms is not
/// waited for: the next idle socket makes room, too.
///
/// A socket is idle when the body of its last answer has ended, nothing has been written on it
/// since, and that has been so for 20 ms, in which a pool would have handed it on. That is told by
/// the answers: [`connected`] has an extra that the hyper-util client puts into each response, and
/// that [`RequestLimit`](crate::RequestLimit) or [`Track`](crate::Track) reports by. The
/// socket of a client whose answers pass neither is busy until its pool or its server closes it,
/// unless it carries nothing yet.
///
/// A socket that a pool has opened for whoever comes makes room as an idle one, and any other that
/// carries nothing yet after 5 s. An upload whose whole answer is there and which pauses is over for
/// its caller, and does as well; after 5 s if its server has not let it write since before the
/// head. One that goes on has its socket until its server or its pool closes it. Upgraded sockets
/// stay.
///
/// A pool gives a socket that becomes free to the next request of the same host. Where somebody is
/// passed over by that for 20 ms, the next socket that becomes free makes room at once: so a host
/// is served in its turn, though another keeps all sockets busy, and not by the first that becomes free
/// but by the second.
///
/// A request that was given to a socket which makes room is not lost: it was never sent, and a pool
/// tries it again by itself (`retry_canceled_requests` of the hyper-util client, on by default).
///
/// # After a 416
/// When a [`RequestLimit`](crate::RequestLimit) of the same limiter reads one, somebody else
/// behind the address holds connections, or the service counts ended ones for longer. The socket
/// that had it is closed. On a socket that had worked it may be about something else: sockets that
/// have not been used for a second make room, and nothing else follows before four of them come
/// within a few answers. On a new socket no connect begins for a second, in which whatever is idle
/// or becomes so is closed, and for a minute one is tried at a time. If a new one is refused then,
/// one fewer is opened for ten minutes than were open, and a sixth fewer at the most; for up to
/// 80 minutes if the whole limit turns out to have been tried again too early.
///
/// # HTTP/2
/// A permit is a socket's, not a request's, so a connection carries as many requests as its peers
/// agree on. It is idle when no answer is under way on it, and its pool alone has a handle to it:
/// the pool takes another for each request, before that is sent. While requests follow each other
/// without a gap it makes no room, nor does one whose first answer never came. At a cold start a pool that learns the protocol from the
/// handshake opens a socket for each of the first requests; they wait here, and all but one are
/// closed again. Where one client's requests pass the limit in part only, the others' bodies are
/// not seen.
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
///
#[doc = include_str!("../CLIENTS.md")]
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
            let was_first = self.readiness.refuse(LimitError::orphaned());
            let served = |connections: &mut Connections, now| connections.served(was_first, now);
            self.readiness.queue().update_now(served);
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

/// The service has answered that there are too many connections. Says whether nothing is to be sent for
/// a while, as far as its refusals tell.
pub(crate) fn refused(queue: &Queue<Connections>) -> bool {
    let (leaving, silent) = queue.update_now(Connections::refused);
    wake(leaving);
    silent
}
