//! Sends requests through the layers, for a client and its clones.

use std::{
    fmt,
    future::Future,
    marker::PhantomData,
    mem,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Method, Request, Response, Uri, Version};
use tokio::{sync::Notify, time::Instant};
use tower::Layer as _;
use tower_oidc_cc::TokenSource;
use tower_service::Service;
use tower_tds_errors::{Error, Kind, RetryFuture};
use tower_tds_limits::{Limiter, PermitBody};
use tower_tds_outcome::{DeadlineAt, remove_connection_headers};

use crate::{
    client::{
        base::Base,
        body::{BodyBounds, ResponseBody},
        request::{ReplayBytes, RequestBody},
    },
    http::{
        http1::{AnyBody, Http},
        pool::Pool,
    },
    stack::TdsLayer,
};

/// The parts that the clones of a client share.
pub(crate) struct Sender {
    pub(crate) stack: Stack,
    /// Idle connections.
    pub(crate) pool: Arc<Pool<RequestBody>>,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) base: Base,
    pub(crate) deadline: Option<Duration>,
    pub(crate) read_timeout: Duration,
    pub(crate) calls: CallTracker,
    pub(crate) tokens: TokenSource,
    pub(crate) limiter: Limiter,
}

/// Layers over an HTTP client of any type.
pub(crate) type Stack = Box<dyn Fn(Request<RequestBody>) -> Attempts + Send + Sync>;

type Attempts = RetryFuture<PermitBody<AnyBody>>;

/// Counts the calls without a response. Whether new ones may begin is a bit of the same number,
/// [`CLOSED`].
#[derive(Debug, Default)]
pub(crate) struct CallTracker {
    count: AtomicUsize,
    ended: Notify,
    /// Time and text of the last failure, kept after a success. Locked only to copy it, and never
    /// across an `.await`.
    failure: Mutex<Option<(Instant, String)>>,
}

/// Deadline of one call, counted from its start, as an extension of its request.
#[derive(Clone)]
pub(crate) struct Deadline(pub(crate) Duration);

/// Counts a call from its start to its response head, its error, or its drop.
struct TrackedCall(Arc<Sender>);

/// Future of a [`Client`](crate::Client), and of a [`Call`](crate::Call).
///
/// # Cancel safety
/// If you drop the future after its request was sent, the call is completed in the background, and
/// frees its permits then.
pub struct ResponseFuture<R = Response<ResponseBody>> {
    /// The attempts, or the error of a request that is not sent.
    inner: Result<Attempts, Option<Error>>,
    /// `None` after the end: a finished future that is kept does not count as a call.
    call: Option<TrackedCall>,
    bounds: BodyBounds,
    /// Method and address, for the errors of the body.
    asked: Option<(Method, Uri)>,
    response: PhantomData<fn() -> R>,
}

// === impl Sender ===

impl Sender {
    /// Begins a call.
    pub(crate) fn send<R>(
        self: &Arc<Self>,
        mut request: Result<Request<RequestBody>, Error>,
    ) -> ResponseFuture<R> {
        let call = TrackedCall(Arc::clone(self));
        let is_open = self.calls.begin();
        let mut bounds = BodyBounds {
            idle: self.read_timeout,
            deadline: None,
        };
        let mut asked = None;
        if let Ok(whole) = &mut request {
            match self.complete(whole, is_open) {
                Ok(()) => {
                    bounds.deadline = self.bound(whole);
                    asked = Some((whole.method().clone(), whole.uri().clone()));
                }
                Err(error) => request = Err(error),
            }
        }
        let inner = request.map(&self.stack).map_err(Some);
        ResponseFuture {
            inner,
            call: Some(call),
            bounds,
            asked,
            response: PhantomData,
        }
    }

    /// Completes a request: its URI and its version.
    fn complete(&self, request: &mut Request<RequestBody>, is_open: bool) -> Result<(), Error> {
        let target = mem::take(request.uri_mut());
        *request.uri_mut() = self.base.resolve(target)?;
        if !is_open {
            let closed = Error::new(Kind::InvalidRequest, "the client was shut down");
            let closed = closed.with_request(request.method().clone(), request.uri());
            return Err(closed.with_advice(SHUT_DOWN));
        }
        // Reverse proxies over this client may pass on a request of another version.
        *request.version_mut() = Version::default();
        remove_connection_headers(request.headers_mut());
        Ok(())
    }

    /// Puts the deadline of the response head on a request. Returns the deadline of the response
    /// body.
    fn bound(&self, request: &mut Request<RequestBody>) -> Option<Instant> {
        let own = request.extensions_mut().remove::<Deadline>();
        let own = own.map(|Deadline(own)| own);
        let after = self.deadline.into_iter().chain(own).min()?;
        let body = Instant::now().checked_add(after.min(FOREVER))?;
        let outer = request.extensions().get::<DeadlineAt>();
        let head = outer.map_or(body, |outer| body.min(Instant::from_std(outer.at)));
        let mut bound = DeadlineAt::new(head.into_std());
        bound.covers_body = head == body;
        request.extensions_mut().insert(bound);
        Some(body)
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

// === impl CallTracker ===

impl CallTracker {
    /// Counts a call until the drop of its [`TrackedCall`]. Returns whether it may begin: false if the client is
    /// closed.
    fn begin(&self) -> bool {
        // SeqCst, with `close` and `ended`: a call is either counted before the close, or sees the
        // close.
        self.count.fetch_add(1, Ordering::SeqCst) < CLOSED
    }

    /// Records a failure, unless it is a mistake of the caller.
    #[cold]
    fn failed(&self, error: &Error) {
        let own = [Kind::NotFound, Kind::Rejected, Kind::InvalidRequest];
        if !own.contains(&error.kind()) {
            let failure = (Instant::now(), error.to_string());
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        }
    }

    /// Returns the age and the text of the last failure, for ten minutes.
    pub(crate) fn last_failure(&self) -> Option<(Duration, String)> {
        let failure = self.failure.lock();
        let failure = failure.unwrap_or_else(PoisonError::into_inner).clone();
        let failure = failure.map(|(at, line)| (at.elapsed(), line));
        failure.filter(|(ago, _)| *ago < SHOWN_FOR)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.count.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Closes the client: no new call begins.
    pub(crate) fn close(&self) {
        self.count.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// Returns the number of calls without a response.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) & !CLOSED
    }

    /// Waits until all calls have ended.
    pub(crate) async fn ended(&self) {
        loop {
            // Created before the count is read, so that no notification is missed.
            let ended = self.ended.notified();
            if self.count.load(Ordering::SeqCst) & !CLOSED == 0 {
                return;
            }
            ended.await;
        }
    }
}

// === impl TrackedCall ===

impl Drop for TrackedCall {
    fn drop(&mut self) {
        let calls = &self.0.calls;
        // Only a closed client has a waiter for the end.
        if calls.count.fetch_sub(1, Ordering::SeqCst) > CLOSED {
            calls.ended.notify_waiters();
        }
    }
}

// === impl ResponseFuture ===

impl<R: From<Response<ResponseBody>>> Future for ResponseFuture<R> {
    type Output = Result<R, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(TrackedCall(sender)) = &this.call else {
            return Poll::Pending;
        };
        let ended = match &mut this.inner {
            Ok(attempts) => ready!(Pin::new(attempts).poll(cx)),
            Err(error) => match error.take() {
                Some(error) => Err(error),
                None => return Poll::Pending,
            },
        };
        let ended = ended.map_err(|error| sender.failed(error));
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

/// Puts the layers around an http client.
pub(crate) fn stack(layer: &TdsLayer<ReplayBytes>, http: Http<RequestBody>) -> Stack {
    let stack = layer.layer(http);
    Box::new(move |request| (&stack).call(request))
}

/// A century: within the range of the clock, so that it still replaces the retry layer's default.
const FOREVER: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);

const SHUT_DOWN: &str = "make all calls before `shutdown`, or build another client";

const ADD_ROOT: &str =
    "give its CA to Builder::root_certificate, or put it into the configuration for Builder::tls";

/// How long a failure is shown: as long as the limits remember a refusal.
const SHOWN_FOR: Duration = Duration::from_secs(600);

/// Bit that no count of calls reaches.
const CLOSED: usize = 1 << (usize::BITS - 1);
