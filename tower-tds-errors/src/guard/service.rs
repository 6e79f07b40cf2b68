//! The service: it passes requests on, and wraps bodies.

use std::task::{Context, Poll};
use std::time::Duration;

use http::Response;
use http_body::Body;
use tower_service::Service;

use super::bodies::Bodies;
use super::body::GuardBody;
use super::future::ResponseFuture;

/// Watches the bodies of successes.
///
/// # Backpressure
///
/// Readiness is the inner service's own.
///
/// # Cancel safety
///
/// Dropping the future or the body drops the inner one.
///
/// # Clone
///
/// As the inner service's; [`Bodies`] are shared.
///
/// # Errors
///
/// The inner service's own. Those of the body say what came of it: [`GuardBody`].
#[derive(Clone, Debug)]
pub struct Guard<S> {
    inner: S,
    idle: Duration,
    bodies: Option<Bodies>,
}

// === impl Guard ===

impl<S> Guard<S> {
    pub(super) const fn new(inner: S, idle: Duration, bodies: Option<Bodies>) -> Self {
        Self {
            inner,
            idle,
            bodies,
        }
    }
}

impl<S, Q, R> Service<Q> for Guard<S>
where
    S: Service<Q, Response = Response<R>>,
    R: Body,
{
    type Response = Response<GuardBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        ResponseFuture::new(self.inner.call(request), self.idle, self.bodies.clone())
    }
}
