//! Retry layer with its settings, and its service.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use sync_wrapper::SyncWrapper;
use tower::BoxError;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument as _;

use self::budget::RetryBudget;
use self::call::{RetriedCall, RetrySettings};
use self::policy::Policy;
use self::request::{CloneBody, Replay};
use self::trace::CallRecord;
use crate::clock;
use crate::error::Error;

pub(crate) mod budget;
mod call;
mod policy;
pub(crate) mod request;
mod trace;

/// Retries failed requests within one deadline.
///
/// Waits as long as the service requests, or else for a random time.
///
/// Put it outermost, so that each attempt takes the current token, a new permit and, if necessary,
/// a new connection. For what is retried, see the table on the [front page](crate).
///
/// Any service may be below, in any order: an error is read by the [`Cause`](tower_tds_outcome::Cause) in its chain, or
/// else by the types of the HTTP client. Put a [`ClassifyLayer`](crate::ClassifyLayer) there as well: without one, a
/// response becomes an error by its head alone, and the message of the service is lost.
///
/// # What bounds a call
///
/// | bound | default |
/// |---|---|
/// | [`deadline`](Self::deadline), from `call` until the response head | 120 s |
/// | [`attempts`](Self::attempts) | 3 |
/// | [`longest_wait`](Self::longest_wait) | 30 s |
/// | [`budget`](Self::budget), for all calls together | one retry for ten calls, and three more each second |
///
/// # Spans and metrics
///
/// `tds.call` and `tds.attempt` are spans at `info`, with OpenTelemetry's fields for HTTP clients:
/// `http.request.method`, `server.address`, `server.port` and `url.path`, and at the end
/// `http.response.status_code`, and for an error `error.type`, which is the [kind](Error::kind).
/// Calls with retries, and each attempt after the first, have `http.request.resend_count`, the
/// number of earlier attempts. If you drop a call, or a deadline ends an attempt, `error.type` is
/// `cancelled`. No span has a query, a header or a body. `url.path` is the unredacted path: filter
/// it if your paths contain secrets.
///
/// With the feature `metrics` you get `tds_calls_total` and `tds_attempts_total` by `kind`, and
/// `tds_call_seconds`, for the `metrics` facade.
///
/// # Allocations
///
/// Each call allocates its future, that of each attempt, a copy of the request's head and an extension for its deadline.
/// A call that has to wait also allocates a timer.
///
/// # Bounds
///
/// A call is one boxed async function, so the service below has to be `Clone + Send + 'static`, its
/// futures `Send`, the body `Send + 'static`, and the [`Replay`] `Send + Sync + 'static`.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU32;
/// use std::time::Duration;
/// use http::{Request, Response};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_tds_errors::{Error, GiveUp, Kind, RetryLayer};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let busy = service_fn(async |_: Request<String>| {
///     Err::<Response<()>, _>(Error::new(Kind::Unavailable, "busy"))
/// });
/// let layer = RetryLayer::new()
///     .attempts(NonZeroU32::new(5).unwrap())
///     .deadline(Duration::from_secs(30));
/// let error = layer.layer(busy).oneshot(Request::new(String::new())).await.unwrap_err();
/// assert_eq!(error.attempts(), 5);
/// assert_eq!(error.gave_up(), Some(GiveUp::Attempts));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RetryLayer<P = CloneBody> {
    settings: RetrySettings<P>,
}

/// Retries failed requests.
///
/// # Backpressure
///
/// `poll_ready` is always ready, and backpressure ends here: the wait for the service below is part
/// of the call, and counts towards its deadline. Bound the waiting calls with a `ConcurrencyLimit`
/// above. A `LoadShed` alone belongs below, where a shed call is retried within the deadline; above
/// this layer it needs that `ConcurrencyLimit` under it. A `Buffer` above never fills.
///
/// Nothing is sent before the first poll of the future.
/// Each call clones the inner service, and polls the clone ready for each attempt.
///
/// # Cancel safety
///
/// Dropping the future drops the wait or the attempt in flight, and nothing is sent after it.
/// During a wait the future holds a copy of the request and the last error, but no response, and no
/// permit of a layer below.
///
/// # Panics
///
/// A call that has to wait panics outside of a tokio runtime with timers.
///
/// # Clone
///
/// Clones share the settings and the budget.
///
/// # Errors
///
/// You get the error of the last attempt, with [`attempts`](Error::attempts) and
/// [`gave_up`](Error::gave_up). If the deadline passed, the error
/// also has [`waited_for`](Error::waited_for), and the kind of the last response, if there was one.
/// Without a [`Classify`](crate::Classify) below, the status alone turns a response into an error.
///
/// # Under layers of tower
///
/// As [`Error`] is a `std::error::Error`, tower's layers box it, and `Error::from` finds it again:
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response};
/// use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
/// use tower_tds_errors::{ClassifyLayer, Error, Kind, RetryLayer};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let client = service_fn(async |_: Request<String>| {
///     Err::<Response<String>, _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
/// });
/// let stack: BoxCloneSyncService<_, _, BoxError> = ServiceBuilder::new()
///     .boxed_clone_sync()
///     .load_shed()
///     .concurrency_limit(100)
///     .timeout(Duration::from_secs(150))
///     .layer(RetryLayer::new())
///     .layer(ClassifyLayer::new())
///     .service(client);
/// let error = stack.oneshot(Request::new(String::new())).await.unwrap_err();
/// assert_eq!(Error::from(error).kind(), Kind::Connect);
/// # }
/// ```
#[derive(Clone)]
pub struct Retry<S, P = CloneBody> {
    inner: S,
    settings: Arc<RetrySettings<P>>,
}

/// Future of [`Retry`].
///
/// # Cancel safety
///
/// Dropping it drops the wait or the attempt in flight, and nothing is sent after that.
#[must_use = "a call is made when its future is polled"]
pub struct RetryFuture<R>(SyncWrapper<Boxed<R>>);

type Boxed<R> = Pin<Box<dyn Future<Output = Result<Response<R>, Error>> + Send>>;

// === impl RetryLayer ===

impl RetryLayer {
    /// Creates a layer with three attempts, two minutes in total and waits of up to 30 s. It clones
    /// request bodies.
    #[must_use]
    pub fn new() -> Self {
        let settings = RetrySettings {
            policy: Policy::default(),
            replay: CloneBody,
            name: None,
        };
        Self { settings }
    }

    /// Sets how request bodies are copied for a retry; see [`Replay`](crate::Replay).
    ///
    /// Give a closure an explicit body type, for example `|body: &Full<Bytes>| ..`, or `|_:
    /// &Incoming| None` for a body that is sent once.
    #[must_use]
    pub fn replay<Q>(self, replay: Q) -> RetryLayer<Q> {
        let settings = RetrySettings {
            policy: self.settings.policy,
            replay,
            name: self.settings.name,
        };
        RetryLayer { settings }
    }
}

impl Default for RetryLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> RetryLayer<P> {
    /// Sets the maximum number of attempts, including the first.
    ///
    /// If a layer below expects a token later, an attempt that ends without one is not counted,
    /// because the backoff of the token endpoint and the deadline bound that wait. If only one
    /// attempt is allowed, there is no retry at all.
    #[must_use]
    pub const fn attempts(mut self, attempts: NonZeroU32) -> Self {
        self.settings.policy.attempts = attempts;
        self
    }

    /// Sets the time from `call` to the response head, with all attempts and waits: a token, a
    /// permit, a backoff, the read of an error's body. Nothing is sent after it.
    ///
    /// If the request has a [`DeadlineAt`](crate::DeadlineAt), the earlier of the two counts; with
    /// neither, the call has two minutes. As with tower's timeout, the body of a success has no
    /// deadline.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.policy.deadline = Some(deadline);
        self
    }

    /// Leaves it to the service below to end an attempt at its deadline, so that a call needs no
    /// timer here.
    ///
    /// Do this only over a service that wakes at the [`DeadlineAt`](crate::DeadlineAt) of its
    /// request in each of its waits, and then returns, as a `RequestLimit` of tower-tds-limits
    /// does. Over any other, a call that gets no response would not end.
    #[doc(hidden)]
    #[must_use]
    pub const fn deadline_kept_below(mut self) -> Self {
        self.settings.policy.is_kept_below = true;
        self
    }

    /// Sets the backoff: its `base`, 100 ms by default, and its longest wait `cap`, 10 s by
    /// default.
    ///
    /// Retry `n`, counted from 0, waits a uniformly random time between zero and `base * 2^n`, and
    /// never above `cap`. This full jitter spreads the retries of requests that failed together. If
    /// your test calls `fastrand::seed`, it gets the same waits each time.
    #[must_use]
    pub const fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.settings.policy.backoff = (base, cap);
        self
    }

    /// Sets the longest wait, jitter included.
    ///
    /// If the service requests a longer wait, the call fails at once with
    /// [`retry_after`](crate::Error::retry_after), because a retry after a shorter wait would fail.
    /// After a 423, and after a 429 without a hint, the wait is at least a second even if this
    /// bound is shorter.
    #[must_use]
    pub const fn longest_wait(mut self, longest: Duration) -> Self {
        self.settings.policy.longest_wait = longest;
        self
    }

    /// Sets the budget of retries; see [`RetryBudget`].
    ///
    /// All services of this layer and of its clones share the budget, for all hosts: one failing
    /// host may use up the retries of another. Several layers can share one budget.
    ///
    /// With `None`, the load of retries has no bound. Use that for a service that has only this
    /// client, or in tests.
    #[must_use]
    pub fn budget(mut self, budget: impl Into<Option<RetryBudget>>) -> Self {
        self.settings.policy.budget = budget.into();
        self
    }

    /// Sets the name of the client: the field `tds.client` of its spans and the label `client` of
    /// its metrics.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.settings.name = Some(name.into());
        self
    }
}

impl<S, P: Clone> Layer<S> for RetryLayer<P> {
    type Service = Retry<S, P>;

    fn layer(&self, inner: S) -> Retry<S, P> {
        let settings = Arc::new(self.settings.clone());
        Retry { inner, settings }
    }
}

// === impl Retry ===

impl<S, P, B, R> Service<Request<B>> for Retry<S, P>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    P: Replay<B> + Send + Sync + 'static,
    B: Send + 'static,
    R: 'static,
{
    type Response = Response<R>;
    type Error = Error;
    type Future = RetryFuture<R>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        (&*self).call(request)
    }
}

/// A call clones only the service below, so you can call through a shared reference.
impl<S, P, B, R> Service<Request<B>> for &Retry<S, P>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    P: Replay<B> + Send + Sync + 'static,
    B: Send + 'static,
    R: 'static,
{
    type Response = Response<R>;
    type Error = Error;
    type Future = RetryFuture<R>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let settings = &self.settings;
        // The deadline counts from here, not from the first poll.
        let began = clock::now();
        let record = CallRecord::call(&request, &settings.name, began);
        // Without a subscriber a span costs a tenth of a call.
        let span = (!record.span.is_disabled()).then(|| record.span.clone());
        let (service, settings) = (self.inner.clone(), Arc::clone(settings));
        let call = RetriedCall::new(service, settings, began, record, request).run();
        RetryFuture(SyncWrapper::new(match span {
            Some(span) => Box::pin(call.instrument(span)),
            None => Box::pin(call),
        }))
    }
}

impl<S: fmt::Debug, P> fmt::Debug for Retry<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Retry");
        f.field("inner", &self.inner);
        f.field("policy", &self.settings.policy).finish()
    }
}

// === impl RetryFuture ===

impl<R> Future for RetryFuture<R> {
    type Output = Result<Response<R>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.get_mut().as_mut().poll(cx)
    }
}

impl<R> fmt::Debug for RetryFuture<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryFuture").finish_non_exhaustive()
    }
}
