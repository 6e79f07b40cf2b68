use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep};

use super::{LONGEST, MOST_BYTES, clock};

/// Yields `chunk` forever, one per `gap`.
struct Drip {
    chunk: &'static [u8],
    gap: Option<Duration>,
    wait: Option<Pin<Box<Sleep>>>,
    polls: usize,
}

impl Drip {
    fn new(chunk: &'static [u8], gap: Option<Duration>) -> Self {
        Self {
            chunk,
            gap,
            wait: None,
            polls: 0,
        }
    }
}

impl Body for Drip {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.polls += 1;
        if let Some(gap) = self.gap {
            let wait = self.wait.get_or_insert_with(|| Box::pin(sleep(gap)));
            std::task::ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(self.chunk)))))
    }
}

async fn read<B: Body>(body: B) -> Vec<u8> {
    super::read(body, MOST_BYTES, clock::now().checked_add(LONGEST))
        .await
        .0
}

#[tokio::test(start_paused = true)]
async fn dripping_body_is_cut_at_the_time_bound() {
    let start = Instant::now();
    let text = read(Drip::new(b"x", Some(Duration::from_millis(300)))).await;
    assert_eq!(text, b"xxx");
    assert_eq!(start.elapsed(), LONGEST);
}

#[tokio::test(start_paused = true)]
async fn endless_empty_frames_are_cut_at_the_byte_bound() {
    let mut drip = Drip::new(b"", None);
    assert!(read(&mut drip).await.is_empty());
    assert_eq!(drip.polls, MOST_BYTES);
}
