//! The view for tower's own retry layer.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use http::Request;
use http::uri::Authority;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tower::retry::Policy;

use super::Settings;
use super::budget::Spending;
use super::state::{Repeats, RetryState};
use crate::clock;
use crate::error::Error;
use crate::give_up::GiveUp;
use crate::kind::Kind;

/// Retries by [`tower::retry`] what [`Retry`](crate::Retry) would, with the same waits: made by
/// [`RetryLayer::policy`](crate::RetryLayer::policy).
///
/// Use it where a stack has tower's layer already, over [`Classify`](crate::Classify). Prefer
/// [`RetryLayer`](crate::RetryLayer) elsewhere: a policy knows no deadline. Clones share its budget.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{BoxError, ServiceBuilder, ServiceExt, retry, service_fn};
/// use tower_tds_errors::{ClassifyLayer, GiveUp, RetryLayer};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let client = service_fn(async |_: Request<()>| {
///     let mut busy = Response::new(String::new());
///     *busy.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
///     Ok::<_, BoxError>(busy)
/// });
/// let stack = ServiceBuilder::new()
///     .layer(retry::RetryLayer::new(RetryLayer::new().policy()))
///     .layer(ClassifyLayer::new())
///     .service(client);
/// let error = stack.oneshot(Request::new(())).await.unwrap_err();
/// assert_eq!((error.attempts(), error.gave_up()), (3, Some(GiveUp::Attempts)));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    settings: Settings,
    /// Of the call that was last begun: tower clones it with the policy for each.
    state: Option<RetryState>,
    /// Whether the next copy is for another attempt of that call, and not for another call.
    retries: bool,
}

// === impl RetryPolicy ===

impl RetryPolicy {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            state: None,
            retries: false,
        }
    }

    fn judge<B>(&mut self, request: &Request<B>, error: &mut Error) -> Option<Duration> {
        let state = self.state.as_mut()?;
        if error.gave_up().is_some_and(|by| by != GiveUp::Forbidden) {
            return None;
        }
        error.facts_mut().attempts = state.attempts;
        let authority = request.uri().authority().map_or("", Authority::as_str);
        match state.go_on(error, &self.settings, Some(authority), None, clock::now()) {
            // Outside a runtime nobody would wake it: what the next attempt was to cost comes back.
            Ok((wait, _)) if !wait.is_zero() && Handle::try_current().is_err() => {
                state.take_back();
                state.spending = Spending::default();
                error.facts_mut().gave_up = Some(GiveUp::NotReady);
                None
            }
            Ok((wait, _)) => {
                self.retries = true;
                Some(wait)
            }
            Err(stop) => {
                error.facts_mut().gave_up = Some(stop);
                state.note_sent(error.facts_mut());
                None
            }
        }
    }
}

/// Over this crate's errors, or boxed ones of a layer between: others than this crate's are taken for
/// what their types say.
impl<B: Clone, R, E: Into<Error> + From<Error>> Policy<Request<B>, R, E> for RetryPolicy {
    type Future = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

    fn retry(
        &mut self,
        request: &mut Request<B>,
        result: &mut Result<R, E>,
    ) -> Option<Self::Future> {
        let Err(failed) = result else {
            self.state.as_mut()?.spending.succeeded();
            return None;
        };
        let held = E::from(Error::from_kind(Kind::Unrecognized));
        let mut error = std::mem::replace(failed, held).into();
        let wait = self.judge(request, &mut error);
        *failed = error.into();
        let wait = wait?;
        Some(Box::pin(async move {
            if !wait.is_zero() {
                sleep(wait).await;
            }
        }))
    }

    /// Right before each attempt. All leave a copy, the last included: of one that does not, tower asks
    /// no policy, and its error would say nothing of the attempts.
    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        let retries = std::mem::take(&mut self.retries);
        if let Some(state) = self.state.as_mut().filter(|_| retries) {
            state.spending.sent();
        } else {
            if let Some(budget) = &self.settings.budget {
                budget.deposit(request.uri());
            }
            let said = request.extensions().get().copied();
            self.state = Some(RetryState::of(Repeats::of(request.method(), said)));
        }
        Some(request.clone())
    }
}
