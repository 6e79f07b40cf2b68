use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::request::permit::RequestPermit;

pin_project! {
    /// A response body that holds its request's permit.
    ///
    /// The permit is freed once, at the first of: the end of the body, an error, the drop of the
    /// body. A body that is already at its end when the head arrives holds none.
    ///
    /// # Cancel safety
    /// Dropping it frees the permit in flight at once. The permits of the quotas stay as long as
    /// the proof asks ([`Proof`](crate::Proof)).
    ///
    /// # Errors
    /// The inner body's own.
    #[derive(Debug)]
    pub struct PermitBody<B> {
        #[pin]
        inner: B,
        // Kept for its drop too.
        permit: Option<RequestPermit>,
    }
}

// === impl PermitBody ===

impl<B> PermitBody<B> {
    pub(super) fn new(inner: B, permit: Option<RequestPermit>) -> Self {
        Self { inner, permit }
    }

    /// The inner body.
    pub fn get_ref(&self) -> &B {
        &self.inner
    }
}

impl<B: Body> Body for PermitBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        match &frame {
            Some(Ok(_)) if !this.inner.is_end_stream() => return Poll::Ready(frame),
            Some(Ok(_)) | None => {
                if let Some(mut permit) = this.permit.take() {
                    permit.ended();
                }
            }
            // Whether the service is done with it is unknown.
            Some(Err(_)) => drop(this.permit.take()),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
