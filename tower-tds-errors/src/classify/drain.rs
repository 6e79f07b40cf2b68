//! Reads an error body to its end, within bounds.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

/// What came, and whether it was all.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Drained {
    pub(super) bytes: Vec<u8>,
    pub(super) whole: bool,
}

pin_project! {
    /// Resolves to what came before the body's end, its error, or a bound.
    ///
    /// A body that ended lets its connection be used again; the others are dropped by the owner,
    /// and their connections with them.
    pub(super) struct Drain<B> {
        #[pin]
        body: B,
        #[pin]
        bound: Sleep,
        left: usize,
        text: Vec<u8>,
    }
}

// === impl Drain ===

impl<B> Drain<B> {
    pub(super) fn new(body: B) -> Self {
        Self {
            body,
            bound: sleep(LONGEST),
            left: MOST_BYTES,
            text: Vec::new(),
        }
    }
}

impl<B: Body> Future for Drain<B> {
    type Output = Drained;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Drained> {
        let mut this = self.project();
        let mut whole = true;
        while !this.body.is_end_stream() {
            let Poll::Ready(frame) = this.body.as_mut().poll_frame(cx) else {
                ready!(this.bound.as_mut().poll(cx));
                whole = false;
                break;
            };
            let Some(Ok(frame)) = frame else {
                whole = frame.is_none();
                break;
            };
            if let Ok(mut data) = frame.into_data() {
                let fits = data.remaining().min(*this.left);
                whole = fits == data.remaining();
                while data.has_remaining() && this.text.len() < MOST_BYTES {
                    let chunk = data.chunk();
                    let room = MOST_BYTES.saturating_sub(this.text.len()).min(chunk.len());
                    this.text
                        .extend_from_slice(chunk.get(..room).unwrap_or(chunk));
                    data.advance(room);
                }
                // At least one, or a body of empty frames would never meet its bound.
                *this.left = this.left.saturating_sub(fits.max(1));
            }
            if *this.left == 0 {
                whole &= this.body.is_end_stream();
                break;
            }
        }
        let bytes = std::mem::take(this.text);
        Poll::Ready(Drained { bytes, whole })
    }
}

/// On the wire. The largest error page known of the gateways has 4 KiB; draining more costs more
/// than the connection that it saves.
pub(super) const MOST_BYTES: usize = 16 * 1024;

/// Far above any answer that comes whole, and short against a backoff.
pub(super) const LONGEST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
