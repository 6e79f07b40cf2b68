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

use self::backoff::Backoff;
use self::budget::Budget;
use self::call::Call;
use self::future::RetryFuture;
use self::replay::{CloneBody, Replay};
use self::request::{Deadline, DeadlineAt, Due};
use crate::clock;
use crate::error::Error;

pub(crate) mod backoff;
pub(crate) mod budget;
mod call;
pub(crate) mod future;
pub(crate) mod replay;
pub(crate) mod request;
pub(crate) mod state;

/// Retries failed requests within one deadline.
///
/// The wait before a retry is the one that the service requests, or a random one.
///
/// Use it outermost: each attempt then takes the current token, a new permit and, if necessary, a
/// new connection. The crate's front page has the table of retried failures.
///
/// The error of the service below must be a [`Failure`].
///
/// # What bounds a call
///
/// | bound | default |
/// |---|---|
/// | [`deadline`](Self::deadline), from `call` until the head, or the end of the body by [`Deadline::whole`] | 120 s |
/// | [`attempts`](Self::attempts) | 3, and one more at once for a GET whose idle connection was closed |
/// | [`longest_wait`](Self::longest_wait) | 30 s |
/// | [`budget`](Self::budget), for all calls together | 10 retries for 100 requests and one a second, counted over ten seconds |
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
/// of the call, and counts towards its [`Deadline`]. Bound the waiting calls with a
/// `ConcurrencyLimit` above it. Put a `LoadShed` below it, where a shed call is retried within the
/// deadline. Put a `Buffer` below it as well: above it, a `Buffer` never fills.
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

/// The state that a layer's clones, services and futures share.
#[derive(Debug)]
struct Shared<P> {
    settings: Settings,
    replay: P,
}

#[derive(Clone)]
struct Settings {
    attempts: NonZeroU32,
    deadline: Option<Deadline>,
    /// Whether the user set the deadline.
    is_set: bool,
    longest_wait: Duration,
    backoff: Backoff,
    budget: Budget,
}

/// An error that the retry layer can read: every `Into<Error>`.
///
/// Put [`ClassifyLayer`](crate::ClassifyLayer) below, and convert the errors of layers in between
/// with `map_err` and [`Error::new`].
#[diagnostic::on_unimplemented(
    message = "the retry layer cannot read the error of the service below it",
    label = "no `Failure`: `{Self}`",
    note = "the errors of `tower-tds` become one by `.map_err(into_error)` right below the retry layer",
    note = "those of a client become one by a `ClassifyLayer`, others by a `From` for `Error`"
)]
pub trait Failure: Into<Error> {}

#[diagnostic::do_not_recommend]
impl<E: Into<Error>> Failure for E {}

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
    ///
    /// One more attempt is not counted: after a [`Reset`](crate::Kind::Reset) of a safe method,
    /// whose idle connection the server had closed. It happens once per call, and not if only one
    /// attempt is allowed.
    #[must_use]
    pub const fn attempts(mut self, attempts: NonZeroU32) -> Self {
        self.settings.attempts = attempts;
        self
    }

    /// Sets the latest deadline of all calls: see [`Deadline`].
    ///
    /// By default it is two minutes, for calls without a deadline of their own.
    #[must_use]
    pub fn deadline(mut self, deadline: impl Into<Deadline>) -> Self {
        self.settings.deadline = Some(deadline.into());
        self.settings.is_set = true;
        self
    }

    /// Sets the waits before retries of transient failures. The default is 100 ms and 10 s.
    ///
    /// The wait before retry `n`, counted from 0, is drawn evenly from nothing to `base * 2^n`, and
    /// never above the cap: full jitter, so that the first retries of many requests that failed
    /// together spread. The thread's [`fastrand`] generator draws them, so a test repeats them with
    /// `fastrand::seed`.
    #[must_use]
    pub const fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.settings.backoff = Backoff::new(base, cap);
        self
    }

    /// Sets the longest wait, jitter included.
    ///
    /// If the service requests a longer wait, the call fails at once with
    /// [`retry_at`](crate::Error::retry_at), because a retry after a shorter wait would fail. The
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
    /// [`TpsBudget::new`] panics unless its time is between 1 and 60 s. It reads tokio's clock at each request and
    /// at each retry.
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
        self.settings.budget = Budget::new(budget.into());
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
    S::Error: Failure,
    P: Replay<B>,
{
    type Response = Response<R>;
    type Error = Error;
    type Future = RetryFuture<S, B, P>;

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
    S::Error: Failure,
    P: Replay<B>,
{
    type Response = Response<R>;
    type Error = Error;
    type Future = RetryFuture<S, B, P>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let settings = &self.shared.settings;
        settings.budget.deposit();
        let due = settings.due(&request);
        let call = Call::new(Arc::clone(&self.shared), due);
        RetryFuture::new(self.inner.clone(), request, call)
    }
}

impl<S: fmt::Debug, P> fmt::Debug for Retry<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Retry");
        f.field("inner", &self.inner);
        f.field("settings", &self.shared.settings).finish()
    }
}

// === impl Settings ===

impl Settings {
    /// The deadlines of a call that begins now.
    #[inline]
    fn due<B>(&self, request: &Request<B>) -> Due {
        let own = request.extensions().get::<Deadline>().copied();
        let outer = request.extensions().get::<DeadlineAt>();
        let mut due = Due {
            call: clock::now(),
            head: outer.map(|outer| outer.0),
            body: None,
        };
        // The default is for calls without a deadline of their own.
        let layers = self.deadline.filter(|_| self.is_set || own.is_none());
        for deadline in [layers, own].into_iter().flatten() {
            due.add(deadline);
        }
        due
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            attempts: THREE,
            deadline: Some(Deadline::after(DEADLINE)),
            is_set: false,
            longest_wait: LONGEST_WAIT,
            backoff: Backoff::default(),
            budget: Budget::default(),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Settings");
        f.field("attempts", &self.attempts);
        f.field("deadline", &self.deadline);
        f.field("longest_wait", &self.longest_wait);
        f.field("backoff", &self.backoff);
        f.field("budget", &self.budget).finish_non_exhaustive()
    }
}

/// The least wait after a 423. Each counter of the service forgets within a second. A request in
/// that second may count, even if it is refused.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);

/// The SRE book's rule for one level of retries ("Handling Overload").
const THREE: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);

/// Twice the longest wait between attempts, and as long again for the attempts.
const DEADLINE: Duration = Duration::from_secs(120);

/// The longest acceptable wait without the caller's consent. A window of a minute is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
