//! The connection limit: a permit from before `connect` until the server has closed.

mod background;
mod closing;
mod future;
mod handle;
mod io;
mod permit;
mod refusals;
mod sockets;
mod track;

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_layer::Layer;
use tower_service::Service;

use self::{background::Begun, closing::Socket, permit::wake_readers, sockets::Ticket};
pub use self::{
    background::{Background, BackgroundTask},
    future::ConnectFuture,
    io::LimitedIo,
    track::TrackBody,
};
pub(crate) use self::{handle::Exchange, permit::ConnectionPermit, sockets::Connections};
use crate::{
    LimitError, Limiter,
    gate::{Gate, Turn},
};

/// Puts [`ConnectionLimit`] around a connector.
///
/// Every connector the layer makes shares the limiter. See [`ConnectionLimit`] for the contract.
///
/// # Examples
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
/// Put it around the connector that a client's pool uses, outermost, so that the TLS handshake
/// is covered. A pool opens more sockets than there are requests, and idle ones count: only a
/// permit inside the socket's own object can bound them.
///
/// # Backpressure
/// `poll_ready` waits for a permit, which the readied instance holds until `call`; connect
/// timeouts that time `call` do not include the wait.
///
/// # Reclaim
/// While a connect waits, the socket that has been idle for longest makes room for it: reading
/// it gives what a server says that closes an idle connection, and its pool drops it. So idle
/// sockets of one host or client never starve another, whatever timeouts the pool has. A server
/// that has not closed after 80 ms is not waited for: the next idle socket makes room, too.
///
/// A socket is idle when each request written on it has been sent and answered whole, by
/// HTTP/1.1's framing (RFC 9112, section 6) or because no stream of HTTP/2 is open (RFC 9113,
/// section 5.1), its reader waits for more, and that has been so for 20 ms, in which a pool would
/// have handed it on. A request that is written before the reader has looked keeps the socket. A
/// socket that has carried nothing yet, or whose HTTP/1.1 response came before its request was
/// sent, makes room after 5 s without a byte. Whatever cannot be told for sure keeps its socket:
/// upgrades, HTTP/1.1's `CONNECT`, bodies that end with the connection, and TLS that is spoken
/// above this layer, as tonic's own is.
///
/// With HTTP/1.1 the reader is given the end of the stream. A pool whose request meets it retries
/// that by itself, as it was never sent (`retry_canceled_requests` of the hyper-util client, on by
/// default). An HTTP/2 client may have taken on a request that it has not written yet, which the
/// end would lose: it reads a GOAWAY that names no last stream (RFC 9113, section 6.8), sees to
/// what it has begun, and closes. What comes later it gives back unsent, and a pool retries that;
/// for a moment within hyper's own code it fails instead, with the GOAWAY as its source, which says
/// that nothing was sent, too.
///
/// # After a 416
/// When a [`RequestLimit`](crate::RequestLimit) of the same limiter reads one, somebody else
/// behind the address holds connections, or the service counts ended ones for longer. No connect
/// begins for a second, in which whatever is idle or becomes so is closed, the refused connection
/// with it. For ten minutes then one fewer is opened than were open, and for up to 80 minutes if
/// the whole limit turns out to have been tried again too early.
///
/// # HTTP/2
/// A permit is a socket's, not a request's, so a connection carries as many requests as its peers
/// agree on, and an idle one makes room as any other. At a cold start a pool that learns the protocol from the handshake opens a socket
/// for each of the first requests; they wait here, and all but one are closed again.
///
/// # Cancel safety
/// Dropping a readied instance gives the permit back at once. Dropping the future or the socket
/// ends this side, and gives the permit back when the server has ended its own: a server counts
/// a connection until then. A download that goes on all the same is reset.
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
pub struct ConnectionLimit<C> {
    inner: C,
    turn: Turn<ConnectionPermit>,
    /// There from the first look at readiness until the call.
    begun: Option<Begun>,
    /// There while it waits for a permit.
    waits: Option<Waits>,
}

/// One who waits for a permit. Kept for its drop.
#[derive(Debug)]
struct Waits {
    gate: Arc<Gate<Connections>>,
    ticket: Ticket,
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
        ConnectionLimit::new(inner, &self.limiter)
    }
}

// === impl ConnectionLimit ===

impl<C> ConnectionLimit<C> {
    /// Limits the sockets of `inner` by `limiter`.
    pub fn new(inner: C, limiter: &Limiter) -> Self {
        Self {
            inner,
            turn: limiter.connection_turn(),
            begun: None,
            waits: None,
        }
    }

    /// The inner connector.
    pub fn get_ref(&self) -> &C {
        &self.inner
    }

    /// Has an idle socket make room while this one waits.
    fn make_room(&mut self) {
        let gate = self.turn.source();
        self.waits.get_or_insert_with(|| Waits {
            gate: Arc::clone(gate),
            ticket: gate.update(Connections::waits),
        });
        wake_readers(gate.update_now(Connections::looked));
    }
}

impl<C, Target> Service<Target> for ConnectionLimit<C>
where
    C: Service<Target>,
    C::Response: Socket,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    type Response = LimitedIo<C::Response>;
    type Error = BoxError;
    type Future = ConnectFuture<C::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let begun = *self.begun.get_or_insert_with(Begun::here);
        let mut inner_waits = false;
        let ready = self.turn.poll_ready(cx, |cx| {
            let ready = self.inner.poll_ready(cx);
            inner_waits = ready.is_pending();
            ready
        });
        if ready.is_pending() && !inner_waits {
            if !begun.is_orphaned() || !self.turn.refuse(LimitError::orphaned()) {
                self.make_room();
                return Poll::Pending;
            }
            if let Some(waits) = self.waits.take() {
                waits.was_served();
            }
            return Poll::Ready(Ok(()));
        }
        self.waits = None;
        ready.map_err(Into::into)
    }

    fn call(&mut self, target: Target) -> Self::Future {
        let begun = self.begun.take().unwrap_or_else(Begun::here);
        match self.turn.take() {
            Ok(permit) => ConnectFuture::called(self.inner.call(target), permit, begun),
            Err(error) => ConnectFuture::refused(error),
        }
    }
}

impl<C: Clone> Clone for ConnectionLimit<C> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            turn: self.turn.another(),
            begun: None,
            waits: None,
        }
    }
}

impl<C: fmt::Debug> fmt::Debug for ConnectionLimit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionLimit")
            .field("inner", &self.inner)
            .field("turn", &self.turn)
            .finish_non_exhaustive()
    }
}

// === impl Waits ===

impl Waits {
    /// The request has got another socket, of its pool.
    fn was_served(&self) {
        let ticket = self.ticket;
        self.gate
            .update_now(|connections, now| connections.was_served(ticket, now));
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let ticket = self.ticket;
        self.gate
            .update(|connections| connections.waits_no_more(ticket));
    }
}

/// The service has answered that there are too many connections.
pub(crate) fn refused(gate: &Gate<Connections>) {
    wake_readers(gate.update_now(Connections::refused));
}
