//! Coded bodies whose frames are split, so that the decoder drops no byte in silence.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Response, header::CONTENT_ENCODING};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// A body that yields the last byte of each frame as a frame of its own, if the body is coded.
    ///
    /// The decoder stops at the end of the first gzip member (tower-rs/tower-http#737). It drops the rest of that
    /// frame, and fails if another frame follows. Here another frame follows whenever the coding ends before the body
    /// does.
    pub(crate) struct Tail<B> {
        #[pin]
        inner: B,
        is_coded: bool,
        last: Option<Bytes>,
    }
}

// === impl Tail ===

impl<B> Tail<B> {
    pub(super) fn of(response: Response<B>) -> Response<Self> {
        let is_coded = response.headers().contains_key(CONTENT_ENCODING);
        response.map(|inner| Self {
            inner,
            is_coded,
            last: None,
        })
    }

    pub(crate) const fn get_ref(&self) -> &B {
        &self.inner
    }
}

impl<B: Body<Data = Bytes>> Body for Tail<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        if let Some(last) = this.last.take() {
            return Poll::Ready(Some(Ok(Frame::data(last))));
        }
        let frame = ready!(this.inner.poll_frame(cx)?);
        let split = |mut data: Bytes| {
            if *this.is_coded && data.len() > 1 {
                *this.last = Some(data.split_off(data.len() - 1));
            }
            data
        };
        Poll::Ready(frame.map(|frame| Ok(frame.map_data(split))))
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
