//! Connections to one host over HTTP/1.1: a list of idle ones, and one rule that ends them.

use std::{
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::{
    HeaderValue, Request, Response, Uri,
    header::{CONTENT_LENGTH, HOST},
    uri::{PathAndQuery, Scheme},
};
use http_body::Body;
use http_body_util::{BodyExt as _, combinators::BoxBody};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    rt::{Read, Write},
};
use hyper_util::client::legacy::connect::Connection;
use tokio::{
    sync::{Notify, oneshot, watch},
    time::{Instant, sleep_until, timeout_at},
};
use tower::{BoxError, ServiceExt as _};
use tower_service::Service;
use tower_tds_errors::{Error, Kind, Sent};
use tower_tds_outcome::{Cause, DeadlineAt, HandOver, Outcome};

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

/// A connection in use. Its drop hands it over to its task.
struct InUse<B> {
    /// Present until the drop.
    sender: Option<SendRequest<B>>,
    home: Home<B>,
    is_reused: bool,
}

/// Leads to the task of a connection, which alone can put it back.
type Home<B> = Arc<Mutex<CameBack<B>>>;

/// A sender on its way to its task, and what wakes the task.
struct CameBack<B> {
    sender: Option<SendRequest<B>>,
    task: Option<Waker>,
}

/// Calls a pool, and connects if it has no idle connection.
struct Caller<B, C> {
    pool: Arc<Pool<B>>,
    connector: C,
}

/// Wait for a response head. Dropped before that, it shows that idle connections may be dead, too.
struct Wait<'a, B> {
    pool: &'a Pool<B>,
    sent_at: Instant,
}

// === impl Http ===

impl<B> Http<B>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    pub(crate) fn new(pool: Arc<Pool<B>>, connector: impl Connector) -> Self {
        let caller = Arc::new(Caller { pool, connector });
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

// === impl Caller ===

impl<B, C> Caller<B, C>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
    C: Connector,
{
    /// Sends a request on a connection. One that was not written, because its connection was
    /// closed while it was idle, goes on with another.
    async fn call(self: Arc<Self>, mut request: Request<B>) -> Result<Response<AnyBody>, BoxError> {
        let deadline = DeadlineAt::of(request.extensions()).map(Instant::from_std);
        let target = take_target(&mut request)?;
        loop {
            if !HandOver::hold(request.extensions()) {
                return Err(not_sent(GIVEN_UP));
            }
            let mut connection = match self.pool.take() {
                Some(idle) => idle,
                None => self.wait(&target).await?,
            };
            let is_reused = connection.is_reused;
            let Some(sender) = &mut connection.sender else {
                return Err(not_sent(ENDED));
            };
            if !HandOver::take(request.extensions()) {
                return Err(not_sent(GIVEN_UP));
            }
            let wait = Wait {
                pool: &self.pool,
                sent_at: Instant::now(),
            };
            let mut head = pin!(sender.try_send_request(request));
            let mut first = None;
            if is_reused {
                let longest = wait.sent_at + self.pool.longest_wait();
                let until = deadline.map_or(longest, |deadline| deadline.min(longest));
                first = timeout_at(until, &mut head).await.ok();
                if first.is_none() {
                    self.pool.close_idle(wait.sent_at);
                }
            }
            let head = match first {
                Some(head) => head,
                None => head.await,
            };
            match head {
                Ok(response) => {
                    wait.end();
                    return Ok(response.map(|body| boxed(body, connection)));
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if is_reused => {
                        mem::forget(wait);
                        request = unsent;
                    }
                    Some(_) => return Err(not_sent(error.into_error())),
                    None => return Err(error.into_error().into()),
                },
            }
        }
    }

    /// Waits for a connection that comes back, or for a new one.
    async fn wait(&self, target: &Uri) -> Result<InUse<B>, BoxError> {
        let mut connect = pin!(self.connect(target));
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
    async fn connect(&self, target: &Uri) -> Result<InUse<B>, BoxError> {
        let mut host = target.clone().into_parts();
        host.path_and_query = Some(PathAndQuery::from_static("/"));
        let host = Uri::from_parts(host)?;
        let mut connector = self.connector.clone();
        let connecting = connector.ready().await.map_err(Into::into)?.call(host);
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
    pub(crate) fn new(keeps: bool) -> Arc<Self> {
        Arc::new(Self {
            list: Mutex::new(List {
                idle: Vec::new(),
                open: keeps.then(|| watch::Sender::new(())),
            }),
            returned: Notify::new(),
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
    fn close_idle(&self, then: Instant) {
        let mut list = self.list();
        let end = list.idle.partition_point(|idle| idle.since <= then);
        let closed: Vec<_> = list.idle.drain(..end).collect();
        drop(list);
        drop(closed);
    }

    /// Takes the connection that became idle last. One that is not ready has ended.
    fn take(&self) -> Option<InUse<B>> {
        // Dropped after the lock is released.
        let mut ended = Vec::new();
        let mut list = self.list();
        loop {
            let idle = list.idle.pop()?;
            if idle.sender.is_ready() {
                return Some(InUse {
                    sender: Some(idle.sender),
                    home: idle.home,
                    is_reused: true,
                });
            }
            ended.push(idle);
        }
    }

    /// Puts a connection back that is ready for a request.
    fn put(&self, sender: SendRequest<B>, home: Home<B>) -> Instant {
        let mut list = self.list();
        let since = Instant::now();
        if list.open.is_some() {
            list.idle.push(Idle {
                sender,
                home,
                since,
            });
            drop(list);
            self.returned.notify_one();
        }
        since
    }

    /// Returns how long a response head may take on a connection that was idle, before those that
    /// have been idle for longer are closed.
    fn longest_wait(&self) -> Duration {
        // Relaxed: an older average is as good.
        let usual = Duration::from_micros(self.usual_wait.load(Relaxed));
        usual.saturating_mul(4).max(SHORT_WAIT)
    }

    fn list(&self) -> MutexGuard<'_, List<B>> {
        lock(&self.list)
    }
}

// === impl Wait ===

impl<B> Wait<'_, B> {
    /// Ends the wait with a response, whose time becomes an eighth of the average.
    fn end(self) {
        let took = u64::try_from(self.sent_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        let usual = match self.pool.usual_wait.load(Relaxed) {
            0 => took,
            usual => usual - usual / 8 + took / 8,
        };
        self.pool.usual_wait.store(usual, Relaxed);
        mem::forget(self);
    }
}

impl<B> Drop for Wait<'_, B> {
    fn drop(&mut self) {
        self.pool.close_idle(self.sent_at);
    }
}

// === impl InUse ===

impl<B> Drop for InUse<B> {
    fn drop(&mut self) {
        let mut home = lock(&self.home);
        home.sender = self.sender.take();
        let task = home.task.take();
        drop(home);
        task.into_iter().for_each(Waker::wake);
    }
}

/// Task of a connection: connects, gives the connection to its call, and from then on drives it
/// and puts it back after each call.
async fn connection<B, T>(
    connecting: impl Future<Output = Result<T, BoxError>>,
    mut caller: oneshot::Sender<Result<InUse<B>, BoxError>>,
    pool: Weak<Pool<B>>,
    open: Option<watch::Receiver<()>>,
) where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
    T: Read + Write + Connection + Send + Unpin + 'static,
{
    let ended = async {
        caller.closed().await;
        if let Some(mut open) = open {
            // An error, because nothing is ever sent.
            drop(open.changed().await);
        }
    };
    let connected = match select(pin!(handshake(connecting)), pin!(ended)).await {
        Either::Left((connected, _)) => connected,
        Either::Right(_) => return,
    };
    let (sender, connection) = match connected {
        Ok(connected) => connected,
        Err(error) => return drop(caller.send(Err(error))),
    };
    let home = Arc::new(Mutex::new(CameBack {
        sender: None,
        task: None,
    }));
    // If the call has gone, the drop hands the connection over to this task.
    drop(caller.send(Ok(InUse {
        sender: Some(sender),
        home: Arc::clone(&home),
        is_reused: false,
    })));
    let mut connection = pin!(connection);
    let mut closes = pin!(sleep_until(Instant::now() + IDLE_TIMEOUT));
    let (mut last, mut since, mut is_set) = (None, Instant::now(), false);
    let driven = poll_fn(|cx| {
        // Polled first, because only then its sender can be ready again.
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut came_back = lock(&home);
        last = came_back.sender.take().or(last.take());
        let is_known = |task: &Waker| task.will_wake(cx.waker());
        if !came_back.task.as_ref().is_some_and(is_known) {
            came_back.task = Some(cx.waker().clone());
        }
        drop(came_back);
        if let Some(mut sender) = last.take() {
            match SendRequest::poll_ready(&mut sender, cx) {
                // Without its sender the connection ends.
                Poll::Ready(Err(_)) => {}
                Poll::Ready(Ok(())) => {
                    if let Some(pool) = pool.upgrade() {
                        since = pool.put(sender, Arc::clone(&home));
                    }
                }
                Poll::Pending => last = Some(sender),
            }
        }
        // Polled only to be registered, because a look at its state is cheaper.
        while !is_set || closes.is_elapsed() {
            is_set = closes.as_mut().poll(cx).is_pending();
            if is_set {
                break;
            }
            let now = Instant::now();
            let then = now.checked_sub(IDLE_TIMEOUT);
            if let (Some(pool), Some(then)) = (pool.upgrade(), then) {
                pool.close_idle(then);
            }
            let begins = if since + IDLE_TIMEOUT > now {
                since
            } else {
                now
            };
            closes.as_mut().reset(begins + IDLE_TIMEOUT);
        }
        Poll::Pending
    });
    driven.await;
}

/// Connects, and prepares the connection for requests.
async fn handshake<B, T>(
    connecting: impl Future<Output = Result<T, BoxError>>,
) -> Result<(SendRequest<B>, http1::Connection<T, B>), BoxError>
where
    B: Body<Data: Send, Error: Into<BoxError>> + 'static,
    T: Read + Write + Connection + Unpin,
{
    let socket = connecting.await?;
    // Called after the handshake of TLS: the limit counts a socket as used from its next write.
    if socket.connected().is_negotiated_h2() {
        let error = Error::new(Kind::Rejected, "the connector has negotiated HTTP/2");
        let error = error.with_sent(Sent::Never).with_advice(NO_H2);
        return Err(error.into());
    }
    let mut http = http1::Builder::new();
    // RFC 9112, section 5.2: a fold in a head is read as a space.
    http.allow_obsolete_multiline_headers_in_responses(true);
    Ok(http.handshake(socket).await?)
}

/// Takes the address out of a request, which sends only its path, and its host as a header (RFC
/// 9112, section 3.2).
fn take_target<B: Body>(request: &mut Request<B>) -> Result<Uri, BoxError> {
    if request.body().size_hint().exact().is_some() {
        // The retry layer has compared it with the body, by which hyper frames the request.
        request.headers_mut().remove(CONTENT_LENGTH);
    }
    let target = mem::take(request.uri_mut());
    let path = target.path_and_query().cloned();
    *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
    if !request.headers().contains_key(HOST) {
        let usual = match target.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => 80,
            _ => 443,
        };
        let name = target.host().unwrap_or_default();
        let value = match target.port_u16().filter(|port| *port != usual) {
            Some(port) => HeaderValue::try_from(format!("{name}:{port}"))?,
            None => HeaderValue::from_str(name)?,
        };
        request.headers_mut().insert(HOST, value);
    }
    Ok(target)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Shorter than the 60 to 75 s of gateways, so that this side closes first, and no request is sent
/// on a closing socket.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// A fixed half second costs .33 connects a call under bursts of slow answers, and a fixed second
/// comes too late for a caller a second later. So this is only the least of the wait, whose usual
/// length is four times the average.
const SHORT_WAIT: Duration = Duration::from_millis(500);

const GIVEN_UP: &str = "the call was given up before its request was sent";

/// Message for a panic of the connector, or the end of its runtime.
const ENDED: &str = "the task that connects has ended without a result";

const NO_H2: &str =
    "leave h2 out of its ALPN protocols, or put TdsLayer over a client that speaks HTTP/2";
