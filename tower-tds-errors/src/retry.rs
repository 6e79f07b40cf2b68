//! The retry layer, which holds the settings, and its service.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tower::retry::budget::TpsBudget;
use tower_layer::Layer;
use tower_service::Service;

use self::call::Call;
use self::future::RetryFuture;
use self::request::{CloneBody, Replay};
use self::settings::{Backoff, Settings, Shared};
use self::trace::Trace;
use crate::clock;
use crate::error::Error;

mod call;
pub(crate) mod future;
pub(crate) mod request;
mod settings;
mod state;
mod trace;

/// Retries failed requests within one deadline.
///
/// The wait before a retry is the one that the service requests, or a random one.
///
/// Use it outermost: each attempt then takes the current token, a new permit and, if necessary, a
/// new connection. The crate's front page has the table of retried failures.
///
/// The error of the service below must convert into [`Error`]: put a
/// [`ClassifyLayer`](crate::ClassifyLayer) below, and convert the errors of layers in between with
/// `map_err` and [`Error::new`].
///
/// # What bounds a call
///
/// | bound | default |
/// |---|---|
/// | [`deadline`](Self::deadline), from `call` until the response head | 120 s |
/// | [`attempts`](Self::attempts) | 3 |
/// | [`longest_wait`](Self::longest_wait) | 30 s |
/// | [`budget`](Self::budget), for all calls together | over ten seconds: one retry for ten requests, and one more each second |
///
/// # Spans and metrics
///
/// `tds.call` and `tds.attempt` are spans at `info`, with OpenTelemetry's fields for HTTP clients:
/// `http.request.method`, `server.address`, `server.port` and `url.path`, and at the end
/// `http.response.status_code` or `error.type`, which is the [kind](Error::kind). A call with
/// retries, and each attempt after the first, have `http.request.resend_count`, the number of
/// attempts before. If a deadline or the caller drops a call or an attempt, its `error.type` is
/// `cancelled`. No span has a query, a header or a body. `url.path` is the unredacted path: filter it
/// if a path contains a secret.
///
/// The feature `metrics` counts calls and attempts for the `metrics` facade: `tds_calls_total` and
/// `tds_attempts_total` by `kind`, and `tds_call_seconds`.
///
/// # Allocations
///
/// A first attempt that succeeds allocates for the copy of the request's head, and for its
/// deadline. A pending call has a timer.
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
/// let busy = service_fn(async |_: Request<()>| {
///     Err::<Response<()>, _>(Error::new(Kind::Unavailable, "busy"))
/// });
/// let layer = RetryLayer::new()
///     .attempts(NonZeroU32::new(5).unwrap())
///     .deadline(Duration::from_secs(30));
/// let error = layer.layer(busy).oneshot(Request::new(())).await.unwrap_err();
/// assert_eq!(error.attempts(), 5);
/// assert_eq!(error.gave_up(), Some(GiveUp::Attempts));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RetryLayer<P = CloneBody> {
    settings: Settings,
    replay: P,
}

/// Retries failed requests.
///
/// # Backpressure
///
/// `poll_ready` is always ready, and backpressure ends here: the wait for the service below is part
/// of the call, and counts towards its deadline. Bound the waiting calls with a `ConcurrencyLimit`
/// above it. A `LoadShed` belongs below this layer, where a shed call is retried within the
/// deadline. A `Buffer` belongs below it too, because above this layer it never fills.
///
/// Nothing is sent before the first poll of the future. `call` itself deposits into the budget.
/// Each call uses a clone of the inner service, which is polled ready for each attempt.
///
/// # Cancel safety
///
/// Dropping the future drops the wait or the attempt in flight, and nothing is sent after it.
/// During a wait it holds the request's copy and the last error, and no response or permit of a
/// layer below.
///
/// # Clone
///
/// Clones share settings.
///
/// # Errors
///
/// The last attempt's error, with [`attempts`](Error::attempts), [`elapsed`](Error::elapsed) and
/// [`gave_up`](Error::gave_up). The error of a call that reached its deadline has
/// [`waited_for`](Error::waited_for), and the kind of the last response, if there was one. If the
/// service below is not classified, a response without success becomes an error by its status.
#[derive(Clone)]
pub struct Retry<S, P = CloneBody> {
    inner: S,
    shared: Arc<Shared<P>>,
}

// === impl RetryLayer ===

impl RetryLayer {
    /// Allows three attempts, two minutes in total and waits of up to 30 s, and clones bodies.
    #[must_use]
    pub fn new() -> Self {
        Self {
            settings: Settings::default(),
            replay: CloneBody,
        }
    }
}

impl Default for RetryLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> RetryLayer<P> {
    /// Sets the most attempts, the first one included.
    #[must_use]
    pub const fn attempts(mut self, attempts: NonZeroU32) -> Self {
        self.settings.attempts = attempts;
        self
    }

    /// Sets the time from `call` to the response head. It covers all attempts and waits: a token, a
    /// permit, a backoff, the read of an error's body. Nothing is sent after it.
    ///
    /// If the request has a [`DeadlineAt`](crate::DeadlineAt), the earlier of the two counts.
    /// Without this setting, a request without a `DeadlineAt` has two minutes. The body of a
    /// success has no deadline, as with tower's timeout.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = Some(deadline);
        self
    }

    /// Sets the waits before retries of transient failures. The default is 100 ms and 10 s.
    ///
    /// The wait before retry `n`, counted from 0, is drawn evenly from nothing to `base * 2^n`, and
    /// never above the cap: full jitter, so that the first retries of many requests that failed
    /// together spread. The waits come from the thread's [`fastrand`] generator: after
    /// `fastrand::seed`, a test gets the same ones.
    #[must_use]
    pub const fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.settings.backoff = Backoff::new(base, cap);
        self
    }

    /// Sets the longest wait, jitter included.
    ///
    /// If the service requests a longer wait, the call fails at once with
    /// [`retry_after`](crate::Error::retry_after), because a retry after a shorter wait would fail. The
    /// second after a 423, or after a 429 without a hint, is kept even if this bound is shorter.
    #[must_use]
    pub const fn longest_wait(mut self, longest: Duration) -> Self {
        self.settings.longest_wait = longest;
        self
    }

    /// Sets the budget of retries.
    ///
    /// All services of this layer and of its clones share it, for all hosts: one failing host may
    /// use up the retries of another. Several layers share a budget if they get the same one.
    ///
    /// `None` retries without a bound on the load: for a service with this one client, or for
    /// tests.
    ///
    /// [`TpsBudget::new`] panics unless its time is between 1 and 60 s. The budget reads tokio's
    /// clock at each request and at each retry.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use tower::retry::budget::TpsBudget;
    /// use tower_tds_errors::RetryLayer;
    ///
    /// // Two retries a second, and one more for five requests, counted over ten seconds.
    /// let budget = TpsBudget::new(Duration::from_secs(10), 2, 0.2);
    /// let layer = RetryLayer::new().budget(Arc::new(budget));
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn budget(mut self, budget: impl Into<Option<Arc<TpsBudget>>>) -> Self {
        self.settings.budget = budget.into();
        self
    }

    /// Names the calls, in the field `tds.client` of their spans and the label `client` of their
    /// metrics.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Sets how bodies are copied: by a closure with an explicit body type, as in `|body:
    /// &Full<Bytes>| ..`, or `|_: &Incoming| None` for streams; see [`Replay`](crate::Replay).
    #[must_use]
    pub fn replay<Q>(self, replay: Q) -> RetryLayer<Q> {
        RetryLayer {
            settings: self.settings,
            replay,
        }
    }
}

impl<S, P: Clone> Layer<S> for RetryLayer<P> {
    type Service = Retry<S, P>;

    fn layer(&self, inner: S) -> Retry<S, P> {
        let shared = Shared {
            settings: self.settings.clone(),
            replay: self.replay.clone(),
        };
        Retry {
            inner,
            shared: Arc::new(shared),
        }
    }
}

// === impl Retry ===

impl<S, P, B, R> Service<Request<B>> for Retry<S, P>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<Error>,
    P: Replay<B>,
{
    type Response = Response<R>;
    type Error = Error;
    type Future = RetryFuture<S, S::Future, B, P>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        (&*self).call(request)
    }
}

/// A call clones only the service below, so a shared reference can be called.
impl<S, P, B, R> Service<Request<B>> for &Retry<S, P>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<Error>,
    P: Replay<B>,
{
    type Response = Response<R>;
    type Error = Error;
    type Future = RetryFuture<S, S::Future, B, P>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let settings = &self.shared.settings;
        settings.deposit();
        let began = clock::now();
        let trace = Trace::begin(&request, &settings.name, began);
        let call = Call::new(Arc::clone(&self.shared), began, request.into_parts());
        RetryFuture::new(self.inner.clone(), call, trace)
    }
}

impl<S: fmt::Debug, P> fmt::Debug for Retry<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Retry");
        f.field("inner", &self.inner);
        f.field("settings", &self.shared.settings).finish()
    }
}
