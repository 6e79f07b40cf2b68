//! Sends again what may succeed then: the layer, which is data, and the service.

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

/// Sends a request again if that can help, a few times, after waits that the service asks for or
/// that are drawn at random, all within one deadline.
///
/// Use it outermost: each attempt then takes the current token, a new permit and, if need be, a
/// new connection. Which failures are retried, and how, stands on the crate's front page.
///
/// The service below has to fail with a [`Failure`].
///
/// # What bounds a call
///
/// | bound | where nobody sets it |
/// |---|---|
/// | [`deadline`](Self::deadline), from `call` until the head, or the end of the body by [`Deadline::whole`] | 120 s |
/// | [`attempts`](Self::attempts) | 3, and once more at once for a GET whose kept connection was closed |
/// | [`longest_wait`](Self::longest_wait) | 30 s |
/// | [`budget`](Self::budget), for all calls together | 10 retries for 100 requests and one a second, counted over ten seconds |
///
/// # Allocations
///
/// A first attempt that succeeds allocates for the copy of the request's head, and for its deadline. A call that
/// is pending has a timer.
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

/// Sends a request again if that can help.
///
/// # Backpressure
///
/// It is always ready, and backpressure ends here: the wait for the service below is part of the
/// call, and counts towards its [`Deadline`]. A `LoadShed` or a `Buffer` above it never sees that
/// the service is busy: put a `LoadShed` below it, where what it sheds is retried within the
/// deadline, and bound the calls that wait by a `ConcurrencyLimit` above it. A `Buffer` goes below it, too,
/// where its queue is waited for as readiness; above it, it shares one service among tasks and bounds nothing.
///
/// Nothing is sent before the future is polled; `call` itself counts the request and pays its part
/// into the budget. Each call is made by a clone of the inner service, which is made
/// ready for each attempt.
///
/// # Cancel safety
///
/// Dropping the future drops the wait or the attempt that is under way, and nothing is sent after.
/// During a wait it holds the request's copy and the last error: no response, no permit of a layer
/// below.
///
/// # Clone
///
/// Clones share settings.
///
/// # Errors
///
/// The last attempt's error, with [`attempts`](Error::attempts), [`elapsed`](Error::elapsed) and
/// [`gave_up`](Error::gave_up). One by the deadline says what was [waited
/// for](Error::waited_for), and is of the kind of the last answer, if there was one. A response that
/// is no success, from a service below that is not classified, is an error by its status.
#[derive(Clone)]
pub struct Retry<S, P = CloneBody> {
    inner: S,
    shared: Arc<Shared<P>>,
}

/// What a layer's clones, their services and their futures share.
#[derive(Debug)]
struct Shared<P> {
    settings: Settings,
    replay: P,
}

#[derive(Clone)]
struct Settings {
    attempts: NonZeroU32,
    deadline: Option<Deadline>,
    /// Whether the deadline is the user's own.
    is_set: bool,
    longest_wait: Duration,
    backoff: Backoff,
    budget: Budget,
}

/// What a retry can be told by: whatever is `Into<Error>`.
///
/// Put [`ClassifyLayer`](crate::ClassifyLayer) below, and make the errors of what is in between into [`Error`] by
/// `map_err` and [`Error::new`].
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
    /// Three attempts, two minutes for all, waits of up to 30 s, and bodies
    /// that are cloned.
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
    /// Sets how often a request is sent at most, the first time included.
    ///
    /// Not counted is one more for a safe method whose kept connection the server had closed: a
    /// [`Reset`](crate::Kind::Reset), once a call, and none where there is one attempt alone.
    #[must_use]
    pub const fn attempts(mut self, attempts: NonZeroU32) -> Self {
        self.settings.attempts = attempts;
        self
    }

    /// Sets the deadline of calls that bring none that is earlier: see [`Deadline`]. Without it they
    /// have two minutes, unless they bring a deadline at all.
    #[must_use]
    pub fn deadline(mut self, deadline: impl Into<Deadline>) -> Self {
        self.settings.deadline = Some(deadline.into());
        self.settings.is_set = true;
        self
    }

    /// Sets the waits before retries of transient failures: 100 ms and 10 s where nobody does.
    ///
    /// The wait before retry `n`, counted from 0, is drawn evenly from nothing to `base * 2^n`, and
    /// never above the cap: full jitter, so that the first retries of many requests that failed
    /// together do not meet again. The draws are those of [`fastrand`] in the thread of the call's first
    /// failure, so that a test repeats them by `fastrand::seed`.
    #[must_use]
    pub const fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.settings.backoff = Backoff::new(base, cap);
        self
    }

    /// Sets the longest wait, jitter included.
    ///
    /// If the service asks for more, the error comes at once, with
    /// [`retry_at`](crate::Error::retry_at): a shorter wait would come too early, and a quota of a day
    /// is not slept through. The second after a 423, or after a 429 that says nothing of its end, is kept
    /// also where this is shorter.
    #[must_use]
    pub const fn longest_wait(mut self, longest: Duration) -> Self {
        self.settings.longest_wait = longest;
        self
    }

    /// Sets the budget of retries. The services of this layer and of its clones share it, and so do all hosts that
    /// they send to: where one host fails, it may use up the retries of another. Several layers share a budget if
    /// they are given the same one.
    ///
    /// `None` retries whatever load that makes: for a service that has this one client, or for tests.
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

    /// Sets how bodies are sent twice: by a closure that names the type of the body, as in
    /// `|body: &Full<Bytes>| ..`, or `|_: &Incoming| None` for streams; see [`Replay`](crate::Replay).
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

/// A call clones what is below and nothing else, so that a shared one is called as it is.
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
    /// The deadlines of a call that is made now.
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

/// The least wait after a 423. Each counter of the service forgets within a second, and a request
/// inside it may count as one more, refused or not.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);

/// The SRE book's rule for one level of retries ("Handling Overload").
const THREE: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);

/// Twice the longest wait that is slept through, and as long again for the attempts.
const DEADLINE: Duration = Duration::from_secs(120);

/// What a caller can be made to wait without being asked; a window of a minute is above it.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
