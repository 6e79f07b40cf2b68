//! The future: it wraps the body when there is one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use super::bodies::Bodies;
use super::body::GuardBody;

pin_project! {
    /// The future of [`Guard`](crate::Guard).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the inner one.
    #[derive(Debug)]
    pub struct ResponseFuture<F> {
        #[pin]
        inner: F,
        idle: Duration,
        bodies: Option<Bodies>,
    }
}

// === impl ResponseFuture ===

impl<F> ResponseFuture<F> {
    pub(super) const fn new(inner: F, idle: Duration, bodies: Option<Bodies>) -> Self {
        Self {
            inner,
            idle,
            bodies,
        }
    }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<GuardBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (head, body) = ready!(this.inner.poll(cx))?.into_parts();
        let open = this.bodies.as_ref().map(Bodies::opened);
        let body = GuardBody::new(&head, body, *this.idle, open);
        Poll::Ready(Ok(Response::from_parts(head, body)))
    }
}
