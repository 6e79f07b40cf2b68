//! The body as hyper reads it, which ends well only where its server has said that it ends.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Response, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tower::BoxError;

pin_project! {
    /// What comes back.
    pub(crate) struct Received {
        #[pin]
        inner: Incoming,
        // Of HTTP/2, in which a server may end a stream by an error that is none.
        is_stream: bool,
    }
}

// === impl Received ===

impl Received {
    #[inline]
    pub(crate) fn of(response: Response<Incoming>) -> Response<Self> {
        let is_stream = response.version() == Version::HTTP_2;
        response.map(|inner| Self { inner, is_stream })
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        // A reset without an error is the end for hyper. It is one only after END_STREAM (RFC 9113, section 8.1),
        // and proxies send it for what broke off behind them.
        if frame.is_none() && *this.is_stream && !this.inner.is_end_stream() {
            let cut = "the stream was reset inside its body, though without an error";
            let cut = io::Error::new(io::ErrorKind::UnexpectedEof, cut);
            return Poll::Ready(Some(Err(cut.into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
