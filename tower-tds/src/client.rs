//! The assembled client: its calls as a service, its status and its end.

use std::{
    fmt,
    future::{Future, ready},
    marker::PhantomData,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{
    HeaderValue, Method, Request, Response, Uri, Version,
    header::{HOST, USER_AGENT},
};
use tokio::time::{Instant, timeout};
use tower_oidc_cc::{Origin, TokenSource};
use tower_service::Service;
use tower_tds_errors::{DeadlineAt, Error, Kind, RetryLayer};
use tower_tds_limits::{Limiter, PermitBody};

pub(crate) mod base;
pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod status;
pub(crate) mod tracker;

use crate::{
    client::base::Base,
    client::body::{AnyBody, Bounds, ResponseBody},
    client::request::RequestBody,
    client::status::Status,
    client::tracker::CallTracker,
    stack::layer::TdsLayer,
};

/// A client of the service. It adds a valid token, keeps within the limits, and returns typed
/// errors.
///
/// # Backpressure
/// `poll_ready` is always ready: the future of a call waits for its token and its permits, within
/// its deadline. To reject calls instead, put a `LoadShed` over a `ConcurrencyLimit` around it.
///
/// # Cancel safety
/// A dropped call that was sent is completed in the background. So its response frees its permit,
/// and its connection stays open. A token request continues as well.
///
/// # Clone
/// Clones share the token, the limits and the sockets.
///
/// # Runtimes
/// A connection belongs to the runtime of the call that opened it. If that runtime has ended, a
/// call on the connection is retried. A current-thread runtime runs its connections only inside
/// `block_on`. Outside of it, a call from another runtime on such a connection waits until the
/// attempt times out. Give each current-thread runtime its own client, with the same
/// [`SharedLimits`](crate::SharedLimits).
///
/// # Errors
/// [`Error::kind`] is the kind of the failure, and the text has the next step. If the body of a
/// success ends early, the [body](ResponseBody) returns the error.
///
/// # Examples
/// See the [crate's front page](crate).
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

/// The deadline of a call: of [`Call::deadline`](crate::Call::deadline) and
/// [`Builder::deadline`](crate::Builder::deadline), or an extension of a request.
///
/// It counts from the start of the call, and covers the waits for a token, a permit and a
/// connection, each attempt, each backoff, and the body. Nothing is sent after it.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tower_tds::Deadline;
///
/// // A large download: the head must arrive within five seconds, and the body has no deadline.
/// let deadline = Deadline::head_only(Duration::from_secs(5));
/// assert_ne!(deadline, Duration::from_secs(5).into());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    after: Duration,
    is_head_only: bool,
}

/// The state that clones share.
pub(crate) struct Shared {
    pub(crate) stack: Stack,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) base: Base,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) read_timeout: Duration,
    pub(crate) calls: CallTracker,
    pub(crate) tokens: TokenSource,
    pub(crate) origin: Origin,
    pub(crate) limiter: Limiter,
}

/// A call from its start to its response head, its error, or its drop.
struct TrackedCall(Arc<Shared>);

/// The layers over an HTTP client of any type. The future is boxed, because it is large and callers
/// move it.
pub(crate) type Stack = Box<dyn Fn(Request<RequestBody>) -> StackFuture + Send + Sync>;

type StackFuture =
    Pin<Box<dyn Future<Output = Result<Response<PermitBody<AnyBody>>, Error>> + Send>>;

// === impl Client ===

impl Client {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Closes the client and all its clones, and waits for calls and token requests in flight.
    /// Returns whether all of them ended in time.
    ///
    /// Cancelled calls that run in the background are in flight as well. A response is in flight
    /// until its body has been read or dropped. If several clients share
    /// [limits](crate::SharedLimits), the method waits for the requests of all of them.
    ///
    /// # Cancel safety
    /// If the future is dropped, the client stays closed.
    pub async fn shutdown(&self, within: Duration) -> bool {
        self.shared.calls.close();
        let ended = async {
            // A call in a backoff or in the queue is not in flight for the limiter.
            self.shared.calls.ended().await;
            self.shared.limiter.idle().await;
            // The save of a token may also be in progress.
            self.shared.tokens.idle().await;
        };
        timeout(within, ended).await.is_ok()
    }

    /// Begins a call.
    pub(crate) fn begin<R>(
        &self,
        request: Result<Request<RequestBody>, Error>,
    ) -> ResponseFuture<R> {
        let shared = &self.shared;
        let call = TrackedCall(Arc::clone(shared));
        let is_open = shared.calls.begin();
        let mut bounds = Bounds {
            idle: shared.read_timeout,
            deadline: None,
        };
        let mut asked = None;
        let inner: StackFuture = match request.and_then(|request| shared.whole(request, is_open)) {
            Ok(mut request) => {
                bounds.deadline = shared.bound(&mut request);
                asked = Some((request.method().clone(), request.uri().clone()));
                (shared.stack)(request)
            }
            Err(error) => Box::pin(ready(Err(error))),
        };
        ResponseFuture {
            inner,
            call: Some(call),
            bounds,
            asked,
            response: PhantomData,
        }
    }

    /// Returns a [`TdsLayer`] with this client's token and limits, for another HTTP client.
    ///
    /// To limit the sockets of the other client as well, put a
    /// [`ConnectionLimitLayer`](tower_tds_limits::ConnectionLimitLayer) of
    /// [`limiter`](Self::limiter) around its connector.
    ///
    /// Retries and deadline have the defaults of [`TdsLayer`]. Calls through the layer do not
    /// appear in [`Status::calls`], only in [`Status::limits`]. [`shutdown`](Self::shutdown) waits
    /// only for those in flight.
    #[must_use]
    pub fn layer(&self) -> TdsLayer {
        let shared = &self.shared;
        let origins = [shared.origin.clone()];
        let layer = TdsLayer::new(shared.tokens.clone(), origins, shared.limiter.clone());
        match &shared.name {
            Some(name) => layer.retry(RetryLayer::new().name(Arc::clone(name))),
            None => layer,
        }
    }

    /// Returns the status: calls, limits, token, and the last failure.
    #[must_use]
    pub fn status(&self) -> Status {
        let shared = &self.shared;
        Status::new(&shared.name, &shared.calls, &shared.tokens, &shared.limiter)
    }

    /// The token source. [`TokenSource::ready`] checks the credentials at start-up, without a data
    /// call.
    #[must_use]
    pub fn tokens(&self) -> &TokenSource {
        &self.shared.tokens
    }

    /// The limiter of the data calls, for its snapshot, and for the connections of another client.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.shared.limiter
    }
}

impl Service<Request<RequestBody>> for Client {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // The retry layer is always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> ResponseFuture {
        self.begin(Ok(request))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("limiter", &self.shared.limiter)
            .finish_non_exhaustive()
    }
}

// === impl Deadline ===

impl Deadline {
    /// Creates a deadline for the response head only. The body is bounded by
    /// [`Builder::read_timeout`](crate::Builder::read_timeout).
    #[must_use]
    pub const fn head_only(after: Duration) -> Self {
        Self {
            after,
            is_head_only: true,
        }
    }
}

/// Creates a deadline at this time after the start of the call, and at most a century after it.
impl From<Duration> for Deadline {
    fn from(after: Duration) -> Self {
        Self {
            after,
            is_head_only: false,
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Completes a request: its URI, its version and its default headers.
    fn whole(
        &self,
        mut request: Request<RequestBody>,
        is_open: bool,
    ) -> Result<Request<RequestBody>, Error> {
        let target = mem::take(request.uri_mut());
        let is_path = target.scheme().is_none();
        *request.uri_mut() = self.base.resolve(target)?;
        if !is_open {
            let closed = Error::new(Kind::InvalidRequest, "the client was shut down");
            let closed = closed.with_request(request.method().clone(), request.uri());
            return Err(closed.with_advice(SHUT_DOWN));
        }
        // A reverse proxy that uses this client may pass on a request of another version.
        *request.version_mut() = Version::default();
        let headers = request.headers_mut();
        headers
            .entry(USER_AGENT)
            .or_insert(HeaderValue::from_static(DEFAULT_USER_AGENT));
        // hyper would format the same value for each request, which takes a twentieth of a call.
        if is_path {
            let host = || self.base.host().clone();
            headers.entry(HOST).or_insert_with(host);
        }
        Ok(request)
    }

    /// Puts the deadline of the response head on a request. Returns the deadline of the response
    /// body.
    fn bound(&self, request: &mut Request<RequestBody>) -> Option<Instant> {
        let own = request.extensions_mut().remove::<Deadline>();
        if self.deadline.is_none() && own.is_none() {
            return None;
        }
        let now = Instant::now();
        let at = |deadline: &Deadline| now.checked_add(deadline.after.min(FOREVER));
        let both = [self.deadline, own];
        let deadlines = || both.iter().flatten();
        let outer = DeadlineAt::of(request.extensions());
        if let Some(head) = deadlines().filter_map(at).chain(outer).min() {
            request.extensions_mut().insert(DeadlineAt(head));
        }
        let with_body = deadlines().filter(|deadline| !deadline.is_head_only);
        with_body.filter_map(at).min()
    }

    /// Records a failure. Adds the setting that solves the problem.
    #[cold]
    fn failed(&self, mut error: Error) -> Error {
        if error.is_unknown_issuer() {
            error = error.with_advice(ADD_ROOT);
        }
        self.calls.failed(&error);
        error
    }
}

// === impl TrackedCall ===

impl Drop for TrackedCall {
    fn drop(&mut self) {
        self.0.calls.end();
    }
}

/// The future of a [`Client`], and of a [`Call`](crate::Call).
///
/// # Cancel safety
/// A call that was sent is completed in the background, and frees its permits then.
pub struct ResponseFuture<R = Response<ResponseBody>> {
    inner: StackFuture,
    /// `None` after the end: a finished future that is kept does not count as a call.
    call: Option<TrackedCall>,
    bounds: Bounds,
    /// For the errors of the body.
    asked: Option<(Method, Uri)>,
    response: PhantomData<fn() -> R>,
}

// === impl ResponseFuture ===

impl<R: From<Response<ResponseBody>>> Future for ResponseFuture<R> {
    type Output = Result<R, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(TrackedCall(shared)) = &this.call else {
            return Poll::Pending;
        };
        let ended = ready!(this.inner.as_mut().poll(cx));
        let ended = ended.map_err(|error| shared.failed(error));
        this.call = None;
        let (bounds, asked) = (this.bounds, this.asked.take());
        let bounded = |response| ResponseBody::bounded(response, bounds, asked);
        Poll::Ready(ended.map(|response| bounded(response).into()))
    }
}

impl<R> fmt::Debug for ResponseFuture<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// The default `User-Agent` (RFC 9110, section 10.1.5).
const DEFAULT_USER_AGENT: &str = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));

/// A century: within the range of the clock, so that it replaces the retry layer's default.
const FOREVER: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);

const SHUT_DOWN: &str = "make all calls before `shutdown`, or build another client";

const ADD_ROOT: &str =
    "give its CA to Builder::root_certificate, or put it into the configuration for Builder::tls";
