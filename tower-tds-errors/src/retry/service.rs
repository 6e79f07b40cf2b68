//! The service: the readied instance makes the first attempt.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::future::ResponseFuture;
use super::kept::Kept;
use super::replay::{CloneBody, Replay};
use super::shared::Shared;
use crate::error::Error;

/// Sends a request again if that can help.
///
/// # Backpressure
///
/// Readiness is the inner service's own. The instance that was made ready makes the first attempt;
/// each other is made by a clone of the inner service, which is made ready for it.
///
/// # Cancel safety
///
/// Dropping the future drops the attempt or the wait that is under way, and nothing is sent after.
/// During a wait it holds the request's copy and the last error: no response, no permit of a layer
/// below.
///
/// # Clone
///
/// Clones share settings.
///
/// # Panics
///
/// In builds with debug assertions, where the layers are in the wrong order: "a failure came as a
/// success: `Classify` has to be inside of `Retry`".
///
/// # Errors
///
/// The last attempt's error, with [`attempts`](Error::attempts), [`elapsed`](Error::elapsed) and
/// [`stopped_because`](Error::stopped_because). If the service below does not become ready again,
/// or the deadline cuts an attempt off, [`earlier`](Error::earlier) has the failure before.
pub struct Retry<S, P = CloneBody> {
    inner: S,
    shared: Arc<Shared<S, P>>,
}

// === impl Retry ===

impl<S, P> Retry<S, P> {
    pub(super) const fn new(inner: S, shared: Arc<Shared<S, P>>) -> Self {
        Self { inner, shared }
    }
}

impl<S, P, B, R> Service<Request<B>> for Retry<S, P>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<Error>,
    P: Replay<B>,
{
    type Response = Response<R>;
    type Error = Error;
    type Future = ResponseFuture<S, B, P>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        if let Some(budget) = &self.shared.policy.budget {
            budget.deposit(request.uri());
        }
        if let Some(counts) = &self.shared.policy.counts {
            counts.note_request();
        }
        let again = self.shared.policy.attempts > NonZeroU32::MIN;
        let kept = Kept::new(&request, again.then_some(&self.shared.replay));
        let attempt = self.inner.call(request);
        ResponseFuture::new(attempt, kept, Arc::clone(&self.shared))
    }
}

impl<S: Clone, P> Clone for Retry<S, P> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.shared))
    }
}

impl<S: fmt::Debug, P> fmt::Debug for Retry<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Retry");
        f.field("inner", &self.inner);
        f.field("policy", &self.shared.policy).finish()
    }
}
