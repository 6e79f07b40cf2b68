//! The view for tower's own retry layer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tower::BoxError;
use tower::retry::Policy;

use super::Settings;
use super::budget::Spending;
use super::state::{Repeats, RetryState};
use crate::clock;
use crate::error::Error;
use crate::give_up::GiveUp;

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
    /// Of the call that this clone judges: tower makes one for each.
    state: Option<RetryState>,
    spending: Spending,
}

pin_project! {
    /// The wait before another attempt. Dropping it gives the attempt up.
    pub struct Wait {
        #[pin]
        sleep: Sleep,
    }
}

// === impl RetryPolicy ===

impl RetryPolicy {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            state: None,
            spending: Spending::default(),
        }
    }

    /// Right before each attempt. All leave a copy, the last included: of one that does not, tower asks
    /// no policy, and its error would say nothing of the attempts.
    fn begins<B: Clone>(&mut self, request: &Request<B>) -> Request<B> {
        let settings = &self.settings;
        self.spending.sent();
        if self.state.is_none() {
            if let Some(budget) = &settings.budget {
                budget.deposit(request.uri());
            }
            let repeats = Repeats::of(request.method(), request.extensions().get().copied());
            self.state = Some(RetryState::of(repeats));
        }
        request.clone()
    }

    fn judge<B>(&mut self, request: &Request<B>, error: &mut Error) -> Option<Wait> {
        if error
            .gave_up()
            .is_some_and(|settled| settled != GiveUp::Forbidden)
        {
            return None;
        }
        let state = self.state.as_mut()?;
        error.facts_mut().attempts = state.attempts();
        let authority = request
            .uri()
            .authority()
            .map_or("", |authority| authority.as_str());
        let budget = self.settings.budget.as_ref();
        let again = state
            .after(error, &self.settings, true, None)
            .and_then(|again| {
                self.spending
                    .pay(budget, authority, again.costs, clock::now())?;
                Ok(again)
            });
        match again {
            Ok(again) => {
                state.note(error, again);
                let sleep = sleep(again.wait);
                Some(Wait { sleep })
            }
            Err(stop) => {
                let facts = error.facts_mut();
                facts.gave_up = Some(stop);
                state.note_sent(facts);
                None
            }
        }
    }
}

impl<B: Clone, R> Policy<Request<B>, R, Error> for RetryPolicy {
    type Future = Wait;

    fn retry(&mut self, request: &mut Request<B>, result: &mut Result<R, Error>) -> Option<Wait> {
        match result {
            Ok(_) => {
                self.spending.succeeded();
                None
            }
            Err(error) => self.judge(request, error),
        }
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(self.begins(request))
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
            self.spending.succeeded();
            return None;
        };
        let mut error = Error::from(std::mem::replace(boxed, BoxError::from("")));
        let wait = self.judge(request, &mut error);
        *boxed = error.into();
        wait
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(self.begins(request))
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
