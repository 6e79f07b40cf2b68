//! Connections to one host over HTTP/1.1: a list of idle ones, and one rule that ends them.

use std::{
    future::Future,
    io::{self, ErrorKind},
    mem,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::{
    HeaderValue, Request, Response, Uri,
    header::{self, CONTENT_LENGTH, HOST},
    uri::{PathAndQuery, Scheme},
};
use http_body::Body;
use http_body_util::{BodyExt as _, combinators::BoxBody};
use hyper::{
    body::Incoming,
    client::conn::http1::SendRequest,
    rt::{Read, Write},
};
use hyper_util::client::legacy::connect::Connection;
use tokio::{
    sync::{Notify, oneshot, watch},
    time::Instant,
};
use tower::{BoxError, ServiceExt as _};
use tower_service::Service;
use tower_tds_outcome::{Cause, HandOver, Outcome, chain};

use crate::http::connection::{Home, InUse, Wait, connection, lock};

/// Body of a response. Boxed, because each layer above moves the response.
pub(crate) type AnyBody = BoxBody<Bytes, BoxError>;

/// Client over a pool, with any connector, behind one pointer, because each call clones it.
pub(crate) struct Http<B>(pub(crate) Arc<dyn Fn(Request<B>) -> HttpFuture + Send + Sync>);

/// A call until its response head.
pub(crate) type HttpFuture =
    Pin<Box<dyn Future<Output = Result<Response<AnyBody>, BoxError>> + Send>>;

/// Makes connections. Its readiness is the permit of a socket.
pub(crate) trait Connector:
    Service<
        Uri,
        Response: Read + Write + Connection + Send + Unpin + 'static,
        Error: Into<BoxError>,
        Future: Send + 'static,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

/// Idle connections of one host.
pub(crate) struct Pool<B> {
    /// Locked for a few moves, and never across an `.await`.
    list: Mutex<List<B>>,
    /// Notified for each connection that came back.
    returned: Notify,
    /// Whether the peer of its connections is the service, and not a proxy or what a connector of the
    /// user's makes.
    is_direct: bool,
    /// Moving average of the waits for a response head, in microseconds. Zero before the first.
    usual_wait: AtomicU64,
}

struct List<B> {
    /// The one that became idle last is at the end, and is taken first.
    idle: Vec<Idle<B>>,
    /// Dropped when the pool is closed, which ends the connects that no call awaits. Without it
    /// nothing is kept.
    open: Option<watch::Sender<()>>,
}

struct Idle<B> {
    sender: SendRequest<B>,
    home: Home<B>,
    since: Instant,
}

/// The one host of a pool. The layers above let no request pass that is for another one.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    /// What a connector gets: scheme and authority.
    address: Uri,
    header: HeaderValue,
}

/// Calls a pool, and connects if it has no idle connection.
struct Caller<B, C> {
    pool: Arc<Pool<B>>,
    /// `None` if each request names its own, as those for tokens do after a discovery.
    host: Option<Host>,
    connector: C,
}

// === impl Http ===

impl<B> Http<B>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    pub(crate) fn new(pool: Arc<Pool<B>>, host: Option<Host>, connector: impl Connector) -> Self {
        let caller = Arc::new(Caller {
            pool,
            host,
            connector,
        });
        Self(Arc::new(move |request| {
            Box::pin(Arc::clone(&caller).call(request))
        }))
    }
}

impl<B> Clone for Http<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B> Service<Request<B>> for Http<B> {
    type Response = Response<AnyBody>;
    type Error = BoxError;
    type Future = HttpFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> HttpFuture {
        (self.0)(request)
    }
}

// === impl C ===

impl<C> Connector for C
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
{
}

// === impl Host ===

impl Host {
    pub(crate) fn of(uri: &Uri) -> Result<Self, http::Error> {
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
        let address = Uri::from_parts(parts)?;
        let usual = if address.scheme() == Some(&Scheme::HTTP) {
            80
        } else {
            443
        };
        let name = address.host().unwrap_or_default();
        // RFC 9110, section 7.2.
        let header = match address.port_u16().filter(|port| *port != usual) {
            Some(port) => HeaderValue::try_from(format!("{name}:{port}"))?,
            None => HeaderValue::from_str(name)?,
        };
        Ok(Self { address, header })
    }

    /// Leaves only the path of a request's address, and adds the headers that it lacks. Here and not
    /// above, because Retry copies what it gets.
    fn complete<B: Body>(&self, request: &mut Request<B>) {
        let path = mem::take(request.uri_mut()).into_parts().path_and_query;
        *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
        let is_sized = request.body().size_hint().exact().is_some();
        let headers = request.headers_mut();
        if is_sized {
            // The retry layer has compared it with the body, by which hyper frames the request.
            headers.remove(CONTENT_LENGTH);
        }
        // RFC 9112, section 3.2: a connection does not add it.
        headers.entry(HOST).or_insert_with(|| self.header.clone());
        // Some firewalls refuse requests without one (RFC 9110, section 10.1.5).
        headers.entry(header::USER_AGENT).or_insert(USER_AGENT);
    }
}

// === impl Caller ===

impl<B, C> Caller<B, C>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
    C: Connector,
{
    /// Sends a request on a connection. One that was not written, because its connection was
    /// closed while it was idle, goes on with another.
    async fn call(self: Arc<Self>, mut request: Request<B>) -> Result<Response<AnyBody>, BoxError> {
        let own;
        let host = match &self.host {
            Some(host) => host,
            None => {
                own = Box::new(Host::of(request.uri())?);
                &*own
            }
        };
        host.complete(&mut request);
        loop {
            if !HandOver::hold(request.extensions()) {
                return Err(not_sent(GIVEN_UP));
            }
            let mut connection = match self.pool.take() {
                Some(idle) => idle,
                // In a box, because a future beyond a kilobyte takes a slower path of the allocator.
                None => Box::pin(self.wait(host)).await?,
            };
            let is_reused = connection.is_reused;
            let Some(sender) = &mut connection.sender else {
                return Err(not_sent(ENDED));
            };
            if !HandOver::take(request.extensions()) {
                return Err(not_sent(GIVEN_UP));
            }
            let is_direct = self.pool.is_direct;
            let hand_over = is_direct.then(|| HandOver::of(request.extensions()));
            let mut wait = Wait::begin(&self.pool, &connection.home, is_reused);
            match sender.try_send_request(request).await {
                Ok(response) => {
                    wait.end();
                    return Ok(response.map(|body| boxed(body, connection)));
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if is_reused => {
                        wait.is_over = true;
                        request = unsent;
                    }
                    Some(_) => return Err(not_sent(error.into_error())),
                    None => {
                        let error = error.into_error();
                        if let Some(hand_over) = hand_over.flatten()
                            && is_end_of_peer(&error)
                        {
                            hand_over.end();
                        }
                        return Err(error.into());
                    }
                },
            }
        }
    }

    /// Waits for a connection that comes back, or for a new one.
    async fn wait(&self, host: &Host) -> Result<InUse<B>, BoxError> {
        let mut connect = pin!(self.connect(host));
        loop {
            let mut returned = pin!(self.pool.returned.notified());
            // Registered before the list is read, so that no notification is missed.
            returned.as_mut().enable();
            if let Some(idle) = self.pool.take() {
                return Ok(idle);
            }
            match select(connect.as_mut(), returned).await {
                Either::Left((connected, _)) => return connected.map_err(not_sent),
                Either::Right(_) => {}
            }
        }
    }

    /// Connects. Until the socket has its permit, this ends with its call; from then on a task
    /// goes on for others.
    async fn connect(&self, host: &Host) -> Result<InUse<B>, BoxError> {
        let mut connector = self.connector.clone();
        let connecting = connector.ready().await.map_err(Into::into)?;
        let connecting = connecting.call(host.address.clone());
        let (caller, connected) = oneshot::channel();
        drop(tokio::spawn(connection(
            async move { connecting.await.map_err(Into::into) },
            caller,
            Arc::downgrade(&self.pool),
            self.pool.list().open.as_ref().map(watch::Sender::subscribe),
        )));
        connected.await.unwrap_or_else(|_| Err(ENDED.into()))
    }
}

// === impl Pool ===

impl<B> Pool<B> {
    /// Creates a pool, which closes each connection after its call unless it `keeps` idle ones.
    pub(crate) fn new(keeps: bool, is_direct: bool) -> Arc<Self> {
        Arc::new(Self {
            list: Mutex::new(List {
                idle: Vec::new(),
                open: keeps.then(|| watch::Sender::new(())),
            }),
            returned: Notify::new(),
            is_direct,
            usual_wait: AtomicU64::new(0),
        })
    }

    /// Closes idle connections and connects that no call awaits. One in use ends with its body.
    pub(crate) fn close(&self) {
        let mut list = self.list();
        let closed = (list.open.take(), mem::take(&mut list.idle));
        drop(list);
        drop(closed);
    }

    /// Closes what has been idle since before `then`.
    pub(super) fn close_idle(&self, then: Instant) {
        let mut list = self.list();
        let end = list.idle.partition_point(|idle| idle.since <= then);
        let closed: Vec<_> = list.idle.drain(..end).collect();
        drop(list);
        drop(closed);
    }

    /// Takes the connection that became idle last. One that is not ready has ended.
    fn take(self: &Arc<Self>) -> Option<InUse<B>> {
        // Dropped after the lock is released.
        let mut ended = Vec::new();
        let mut list = self.list();
        loop {
            let idle = list.idle.pop()?;
            if idle.sender.is_ready() {
                return Some(InUse {
                    sender: Some(idle.sender),
                    home: idle.home,
                    pool: Arc::downgrade(self),
                    is_reused: true,
                });
            }
            ended.push(idle);
        }
    }

    /// Puts a connection back that is ready for a request.
    pub(super) fn put(&self, sender: SendRequest<B>, home: Home<B>) {
        let since = Instant::now();
        lock(&home).idle_since = since;
        let mut list = self.list();
        if list.open.is_some() {
            list.idle.push(Idle {
                sender,
                home,
                since,
            });
            drop(list);
            self.returned.notify_one();
        }
    }

    /// Returns how long a response head may take on a connection that was idle, before those that
    /// have been idle for longer are closed.
    pub(super) fn longest_wait(&self) -> Duration {
        // Relaxed: an older average is as good.
        let usual = Duration::from_micros(self.usual_wait.load(Relaxed));
        usual.saturating_mul(4).max(SHORT_WAIT)
    }

    /// Makes the time of a response head an eighth of the average.
    pub(super) fn learn(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let usual = match self.usual_wait.load(Relaxed) {
            0 => took,
            usual => usual - usual / 8 + took / 8,
        };
        self.usual_wait.store(usual, Relaxed);
    }

    fn list(&self) -> MutexGuard<'_, List<B>> {
        lock(&self.list)
    }
}

/// Whether the peer has reset or ended the connection.
#[cold]
fn is_end_of_peer(error: &hyper::Error) -> bool {
    let kinds = chain(error).filter_map(|link| link.downcast_ref::<io::Error>());
    let is_end = |kind| matches!(kind, ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof);
    error.is_incomplete_message() || kinds.map(io::Error::kind).any(is_end)
}

/// Boxes a body, whose connection is in use until the body is dropped.
fn boxed<B: Send + 'static>(body: Incoming, connection: InUse<B>) -> AnyBody {
    let connection = (!body.is_end_stream()).then_some(connection);
    let of_connection = move |error: hyper::Error| {
        let _in_use = &connection;
        error.into()
    };
    body.map_err(of_connection).boxed()
}

/// Marks the error of a request that was not written to a connection.
fn not_sent(error: impl Into<BoxError>) -> BoxError {
    Cause::new(Outcome::Unsent).over(error).into()
}

pub(crate) const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!(
    env!("CARGO_PKG_NAME"),
    "/",
    env!("CARGO_PKG_VERSION")
));

/// A fixed half second costs .33 connects a call under bursts of slow answers, and a fixed second
/// comes too late for a caller a second later. So this is only the least of the wait, whose usual
/// length is four times the average.
const SHORT_WAIT: Duration = Duration::from_millis(500);

const GIVEN_UP: &str = "the call was given up before its request was sent";

/// Message for a panic of the connector, or the end of its runtime.
const ENDED: &str = "the task that connects has ended without a result";

#[cfg(test)]
mod tests;
