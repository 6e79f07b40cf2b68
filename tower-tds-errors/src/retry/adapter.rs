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

use super::SILENCE;
use super::backoff::{Backoff, QUOTA, up_to};
use crate::error::Error;
use crate::kind::table::Advice;
use crate::sent::Sent;
use crate::stop::Stop;

/// Retries by [`tower::retry`] what [`Retry`](crate::Retry) would, with the same waits.
///
/// Use it where a stack has tower's layer already. Prefer [`RetryLayer`](crate::RetryLayer)
/// elsewhere: a policy knows no deadline and no budget, and cannot keep the failure before where
/// the service below does not become ready again.
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
    attempts: NonZeroU32,
    longest_wait: Duration,
    backoff: Backoff,
    made: NonZeroU32,
    cured: bool,
}

pin_project! {
    /// The wait before another attempt.
    pub struct Wait {
        #[pin]
        sleep: Sleep,
    }
}

// === impl RetryPolicy ===

impl RetryPolicy {
    /// Three attempts, the default [`Backoff`], and waits of up to 30 s.
    #[must_use]
    pub fn new() -> Self {
        Self {
            attempts: NonZeroU32::MIN.saturating_add(2),
            longest_wait: Duration::from_secs(30),
            backoff: Backoff::default(),
            made: NonZeroU32::MIN,
            cured: false,
        }
    }

    /// Sets how often a request is sent at most, the first time included.
    #[must_use]
    pub const fn attempts(mut self, attempts: NonZeroU32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets the longest wait that the service may ask for. Above it the error comes at once.
    #[must_use]
    pub const fn longest_wait(mut self, longest: Duration) -> Self {
        self.longest_wait = longest;
        self
    }

    /// Sets the waits before retries of transient failures.
    #[must_use]
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Notes on the error how it went, and waits or stops.
    fn judge<B>(&mut self, request: &Request<B>, error: &mut Error) -> Option<Wait> {
        let settled = error.stopped_because();
        if settled.is_some_and(|stop| stop != Stop::Vetoed) {
            return None;
        }
        error.facts_mut().attempts = self.made.get();
        match settled.map_or_else(|| self.verdict(request, error), Err) {
            Ok(wait) => {
                self.made = self.made.saturating_add(1);
                self.cured |= error.kind().advice() == Advice::Once;
                Some(Wait { sleep: sleep(wait) })
            }
            Err(stop) => {
                error.facts_mut().stop = Some(stop);
                None
            }
        }
    }

    fn verdict<B>(&self, request: &Request<B>, error: &Error) -> Result<Duration, Stop> {
        let hint = error.retry_after();
        let (backoff, floor) = match error.kind().advice() {
            Advice::Never => return Err(Stop::Fatal),
            Advice::Once if self.cured => return Err(Stop::Fatal),
            Advice::Once | Advice::Backoff => (self.backoff, hint.unwrap_or_default()),
            Advice::Silence => (self.backoff, hint.unwrap_or_default().max(SILENCE)),
            Advice::Quota => (QUOTA, hint.unwrap_or(SILENCE)),
        };
        if error.sent() != Sent::Never && !request.method().is_idempotent() {
            return Err(Stop::NotIdempotent);
        }
        if self.made >= self.attempts {
            return Err(Stop::Attempts);
        }
        if floor > self.longest_wait.max(SILENCE) {
            return Err(Stop::HintTooLong);
        }
        if error.kind().advice() == Advice::Once && hint.is_none() {
            return Ok(Duration::ZERO);
        }
        let mut rng = Rng::new();
        let drawn = backoff.draw(self.made.get().saturating_sub(1), &mut rng);
        let spread = up_to(floor.checked_div(2).unwrap_or_default(), &mut rng);
        Ok(floor.max(drawn).saturating_add(spread))
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
        self.judge(request, result.as_mut().err()?)
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
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
        let boxed = result.as_mut().err()?;
        let taken = std::mem::replace(boxed, BoxError::from(""));
        let mut error = Error::from(taken);
        let wait = self.judge(request, &mut error);
        *boxed = error.into();
        wait
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
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
