//! The decision as a policy for tower's own retry layer.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use fastrand::Rng;
use http::Request;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tower::BoxError;
use tower::retry::Policy;

use self::paid::Paid;
use super::backoff::Backoff;
use super::budget::Budget;
use super::policy::Policy as Settings;
use super::verdict::{Again, Cured, Failed, Idempotent, Reuse, Spare, Way, verdict};
use crate::clock;
use crate::error::Error;
use crate::error::facts::parts;
use crate::stop::Stop;

mod paid;

/// Retries by [`tower::retry`] what [`Retry`](crate::Retry) would, with the same waits.
///
/// Use it where a stack has tower's layer already. Prefer [`RetryLayer`](crate::RetryLayer)
/// elsewhere: a policy knows no deadline, and cannot keep the failure before where the service below
/// does not become ready again. Clones of a policy share its budget.
///
/// It goes over [`Classify`](crate::Classify), directly or through a `Buffer`.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::retry::RetryLayer;
/// use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};
/// use tower_tds_errors::{ClassifyLayer, RetryPolicy, Stop};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let client = service_fn(async |_: Request<()>| {
///     let mut busy = Response::new(String::new());
///     *busy.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
///     Ok::<_, BoxError>(busy)
/// });
/// let stack = ServiceBuilder::new()
///     .layer(RetryLayer::new(RetryPolicy::new()))
///     .layer(ClassifyLayer::new())
///     .service(client);
/// let error = stack.oneshot(Request::new(())).await.unwrap_err();
/// assert_eq!((error.attempts(), error.stopped_because()), (3, Some(Stop::Attempts)));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    policy: Settings,
    /// How many attempts were made, and how many of them count.
    made: u32,
    counted: u32,
    waited: Duration,
    cured: Cured,
    reuse: Reuse,
    paid: Paid,
}

pin_project! {
    /// The wait before another attempt.
    ///
    /// # Cancel safety
    ///
    /// Dropping it gives the attempt up: nothing is sent.
    pub struct Wait {
        #[pin]
        sleep: Sleep,
    }
}

// === impl RetryPolicy ===

impl RetryPolicy {
    /// Three attempts, the default [`Backoff`] and [`Budget`], and waits of up to 30 s.
    #[must_use]
    pub fn new() -> Self {
        Self {
            policy: Settings::default(),
            made: 1,
            counted: 1,
            waited: Duration::ZERO,
            cured: Cured::No,
            reuse: Reuse::Open,
            paid: Paid::default(),
        }
    }

    /// Sets how often a request is sent at most, the first time included.
    #[must_use]
    pub const fn attempts(mut self, attempts: NonZeroU32) -> Self {
        self.policy.attempts = attempts;
        self
    }

    /// Sets the longest wait that the service may ask for. Above it the error comes at once.
    #[must_use]
    pub const fn longest_wait(mut self, longest: Duration) -> Self {
        self.policy.longest_wait = longest;
        self
    }

    /// Sets the waits before retries of transient failures.
    #[must_use]
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// Sets what retries a host bears.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.policy.budget = Some(budget);
        self
    }

    /// Retries whatever load that makes: for a host that has this one client, or for none but tests.
    #[must_use]
    pub fn unbudgeted(mut self) -> Self {
        self.policy.budget = None;
        self
    }

    /// The copy from which the next attempt is made, and with it the notice that one begins.
    fn copy<B: Clone>(&mut self, request: &Request<B>) -> Request<B> {
        // Tower asks before each attempt, right before it calls.
        self.paid.begin();
        if let (1, Some(budget)) = (self.made, &self.policy.budget) {
            budget.deposit(request.uri());
        }
        request.clone()
    }

    fn succeeded(&mut self) -> Option<Wait> {
        self.paid.succeeded();
        None
    }

    /// Notes on the error how it went, and waits or stops.
    fn judge<B>(&mut self, request: &Request<B>, error: &mut Error) -> Option<Wait> {
        let settled = error.stopped_because();
        if settled.is_some_and(|stop| stop != Stop::Vetoed) {
            return None;
        }
        error.facts_mut().attempts = self.made;
        let again = settled.map_or_else(|| self.decide(request, error), Err);
        match again {
            Ok(again) => {
                self.made = self.made.saturating_add(1);
                if again.way == Way::Reused {
                    self.reuse = Reuse::Spent;
                } else {
                    self.counted = self.counted.saturating_add(1);
                }
                if error.advice().is_once() {
                    self.cured = Cured::Yes;
                }
                self.waited = again.wait;
                let sleep = sleep(again.wait);
                Some(Wait { sleep })
            }
            Err(stop) => {
                error.facts_mut().stop = Some(stop);
                None
            }
        }
    }

    fn decide<B>(&mut self, request: &Request<B>, error: &Error) -> Result<Again, Stop> {
        let method = request.method();
        let failed = Failed {
            kind: error.kind(),
            advice: error.advice(),
            sent: error.sent(),
            hint: error.retry_after(),
            waited: self.waited,
            attempt: self.counted,
            cured: self.cured,
            reuse: if method.is_safe() {
                self.reuse
            } else {
                Reuse::Spent
            },
            idempotent: Idempotent::of(method, request.extensions()),
            spare: Spare::Kept,
            left: None,
        };
        let again = verdict(&failed, &self.policy, &mut Rng::new())?;
        if let (Way::Reused | Way::Paid, Some(budget)) = (again.way, &self.policy.budget) {
            let price = budget.withdraw_at(parts(request.uri()), clock::now());
            self.paid.owe(price.ok_or(Stop::Budget)?, again.way);
        }
        Ok(again)
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new()
    }
}

/// Each attempt leaves a copy, the last included: of one that does not, tower asks no policy, and its
/// error would say nothing of the attempts.
impl<B: Clone, R> Policy<Request<B>, R, Error> for RetryPolicy {
    type Future = Wait;

    fn retry(&mut self, request: &mut Request<B>, result: &mut Result<R, Error>) -> Option<Wait> {
        match result {
            Ok(_) => self.succeeded(),
            Err(error) => self.judge(request, error),
        }
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(self.copy(request))
    }
}

/// For a layer between that boxes errors. Other errors than this crate's are taken for what their
/// types say.
impl<B: Clone, R> Policy<Request<B>, R, BoxError> for RetryPolicy {
    type Future = Wait;

    fn retry(
        &mut self,
        request: &mut Request<B>,
        result: &mut Result<R, BoxError>,
    ) -> Option<Wait> {
        let Err(boxed) = result else {
            return self.succeeded();
        };
        let taken = std::mem::replace(boxed, BoxError::from(""));
        let mut error = Error::from(taken);
        let wait = self.judge(request, &mut error);
        *boxed = error.into();
        wait
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(self.copy(request))
    }
}

// === impl Wait ===

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.project().sleep.poll(cx)
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").finish_non_exhaustive()
    }
}
