use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::{MOST_BYTES, read};

/// Yields empty frames forever, and counts them.
struct Empty(usize);

impl Body for Empty {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0 += 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::new()))))
    }
}

#[tokio::test]
async fn endless_empty_frames_are_cut_at_the_byte_bound() {
    let mut frames = Empty(0);
    let (bytes, is_complete) = read(&mut frames, MOST_BYTES, None).await;
    assert!(bytes.is_empty() && !is_complete);
    assert_eq!(frames.0, MOST_BYTES);
}
