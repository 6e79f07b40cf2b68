//! Request bodies that are slow to come.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame};

/// Begins, and never goes on.
#[derive(Default)]
pub(crate) struct Stalled {
    begun: bool,
}

/// Comes when a future has: what it reads is fetched while it is read.
pub(crate) struct Fetched {
    fetch: Option<Pin<Box<dyn Future<Output = Bytes> + Send>>>,
}

// === impl Stalled ===

impl Body for Stalled {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if std::mem::replace(&mut self.begun, true) {
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"a bus")))))
    }
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
