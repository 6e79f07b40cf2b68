use std::{
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf;
use http::Response;
use http_body::Body;
use tokio::{runtime::Handle, time::timeout};

use super::{Feedback, SentCall};

/// A call that is completed in the background if it is dropped after its request was sent.
///
/// # Cancel safety
/// See [`RequestLimitLayer::detached`](crate::RequestLimitLayer::detached).
pub struct DetachedCall<S, F> {
    /// `None` once it is ready.
    call: Option<SentCall<S, F>>,
    /// Left set by a poll that panicked: such a call is not polled again.
    is_polled: bool,
    /// Spawns the rest, with the bounds that are known where the call is made.
    spawn: fn(SentCall<S, F>),
}

// === impl DetachedCall ===

impl<S, F, B, E> From<SentCall<S, F>> for DetachedCall<S, F>
where
    S: Future<Output = Result<Response<B>, E>> + Send + Unpin + 'static,
    F: Feedback<Response<B>, E> + Send + Sync + 'static,
    B: Body<Data: Buf + Send, Error: Send> + Send + 'static,
    E: Send + 'static,
{
    #[inline]
    fn from(call: SentCall<S, F>) -> Self {
        Self {
            call: Some(call),
            is_polled: false,
            spawn: |call| {
                if let Ok(runtime) = Handle::try_current() {
                    drop(runtime.spawn(timeout(LONGEST, complete(call))));
                }
            },
        }
    }
}

impl<S, F> Future for DetachedCall<S, F>
where
    SentCall<S, F>: Future + Unpin,
{
    type Output = <SentCall<S, F> as Future>::Output;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(call) = &mut this.call else {
            return Poll::Pending;
        };
        this.is_polled = true;
        let polled = Pin::new(call).poll(cx);
        this.is_polled = false;
        if polled.is_ready() {
            this.call = None;
        }
        polled
    }
}

impl<S, F> Drop for DetachedCall<S, F> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take()
            && !self.is_polled
            && call.is_sent()
        {
            (self.spawn)(call);
        }
    }
}

impl<S, F> fmt::Debug for DetachedCall<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DetachedCall").field(&self.call).finish()
    }
}

/// Reads a response to its end, within [`MOST`].
async fn complete<B: Body<Data: Buf>, E>(call: impl Future<Output = Result<Response<B>, E>>) {
    let Ok(response) = call.await else {
        return;
    };
    let mut body = pin!(response.into_body());
    let mut left = MOST;
    while let Some(Ok(frame)) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let length = frame.data_ref().map_or(0, Buf::remaining);
        let Some(rest) = left.checked_sub(length) else {
            return;
        };
        left = rest;
    }
}

/// As long as a lost request counts by default ([`Limits::lost_after`](crate::Limits::lost_after)).
const LONGEST: Duration = Duration::from_secs(10);

/// Reading this much costs less than a new connection and its handshake.
const MOST: usize = 256 * 1024;
