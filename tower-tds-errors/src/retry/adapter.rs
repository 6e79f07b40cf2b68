//! The decision as a policy for tower's own retry layer.

use std::num::NonZeroU32;
use std::time::Duration;

use http::Request;
use tower::BoxError;
use tower::retry::Policy;

use self::call::Call;
pub use self::wait::Wait;
use super::backoff::Backoff;
use super::budget::Budget;
use super::policy::Policy as Settings;
use crate::error::Error;

mod call;
mod paid;
mod wait;

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
    /// The call that this clone judges: tower makes one for each.
    call: Call,
}

// === impl RetryPolicy ===

impl RetryPolicy {
    /// Three attempts, the default [`Backoff`] and [`Budget`], and waits of up to 30 s.
    #[must_use]
    pub fn new() -> Self {
        Self {
            policy: Settings::default(),
            call: Call::new(),
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
            Ok(_) => self.call.succeeded(),
            Err(error) => self.call.judge(request, error, &self.policy),
        }
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(self.call.copy(request, &self.policy))
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
            return self.call.succeeded();
        };
        let taken = std::mem::replace(boxed, BoxError::from(""));
        let mut error = Error::from(taken);
        let wait = self.call.judge(request, &mut error, &self.policy);
        *boxed = error.into();
        wait
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(self.call.copy(request, &self.policy))
    }
}
