//! A request body that is fetched while it is read.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame};

/// A body of one frame, the output of a future.
pub(crate) struct Fetched {
    fetch: Option<Pin<Box<dyn Future<Output = Bytes> + Send>>>,
}

// === impl Fetched ===

impl Fetched {
    pub(crate) fn new(fetch: impl Future<Output = Bytes> + Send + 'static) -> Self {
        Self {
            fetch: Some(Box::pin(fetch)),
        }
    }
}

impl Body for Fetched {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(fetch) = &mut self.fetch else {
            return Poll::Ready(None);
        };
        let bytes = ready!(fetch.as_mut().poll(cx));
        self.fetch = None;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}
