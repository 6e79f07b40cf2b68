//! The service: the readied instance makes the first attempt.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::future::ResponseFuture;
use super::layer::Policy;
use super::replay::{CloneBody, Replay};
use super::session::Session;
use crate::error::Error;

/// Sends a request again if that can help.
///
/// # Backpressure
///
/// Readiness is the inner service's own. The instance that was made ready makes the first attempt
/// and is made ready again before each other.
///
/// # Cancel safety
///
/// Dropping the future drops the attempt or the wait that is under way, and nothing is sent after.
/// During a wait it holds the request's copy and the last error: no response, no permit of a layer
/// below.
///
/// # Clone
///
/// Clones share nothing but settings.
///
/// # Errors
///
/// The last attempt's error, with [`attempts`](Error::attempts), [`elapsed`](Error::elapsed) and
/// [`stopped_because`](Error::stopped_because). If the service below does not become ready again,
/// or the deadline cuts an attempt off, [`earlier`](Error::earlier) has the failure before.
#[derive(Clone, Debug)]
pub struct Retry<S, P = CloneBody> {
    inner: S,
    policy: Arc<Policy>,
    replay: P,
}

// === impl Retry ===

impl<S, P> Retry<S, P> {
    pub(super) const fn new(inner: S, policy: Arc<Policy>, replay: P) -> Self {
        Self {
            inner,
            policy,
            replay,
        }
    }
}

impl<S, P, B, R> Service<Request<B>> for Retry<S, P>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<Error>,
    P: Replay<B> + Clone,
{
    type Response = Response<R>;
    type Error = Error;
    type Future = ResponseFuture<S, B, P>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let session = Session::new(Arc::clone(&self.policy), self.replay.clone(), &request);
        // The clone is not ready; whoever calls next makes it so.
        let clone = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, clone);
        let attempt = ready.call(request);
        ResponseFuture::new(ready, attempt, session)
    }
}
