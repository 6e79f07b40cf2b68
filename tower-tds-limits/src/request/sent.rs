//! A call from its sending to its response head, and its completion in the background.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Buf;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::{runtime::Handle, time::timeout};

use super::{Feedback, PermitBody, RequestPermit, Settings, guard::Watch};
use crate::Error;

pin_project! {
    /// A call from its sending to its response head.
    ///
    /// # Cancel safety
    /// See [`RequestLimit`](crate::RequestLimit).
    pub struct SentCall<S, F> {
        // `None` while it is dropped.
        #[pin]
        response: Option<S>,
        // `None` once the response is there.
        permit: Option<RequestPermit>,
        watch: Watch,
        settings: Arc<Settings<F>>,
    }

    impl<S, F> PinnedDrop for SentCall<S, F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let Some(mut permit) = this.permit.take() else {
                return;
            };
            if this.watch.drop_call(|| this.response.set(None)) {
                permit.unsent();
            }
        }
    }
}

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

// === impl SentCall ===

impl<S, F> SentCall<S, F> {
    #[inline]
    pub(super) fn new(
        response: S,
        permit: RequestPermit,
        watch: Watch,
        settings: Arc<Settings<F>>,
    ) -> Self {
        Self {
            response: Some(response),
            permit: Some(permit),
            watch,
            settings,
        }
    }

    /// Whether the request's head was sent.
    pub(super) fn is_sent(&self) -> bool {
        self.watch.sent_at().is_some()
    }
}

impl<S, F, B, E> Future for SentCall<S, F>
where
    S: Future<Output = Result<Response<B>, E>>,
    F: Feedback<Response<B>, E>,
    B: Body,
{
    type Output = Result<Response<PermitBody<B>>, Error<E>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(response) = this.response.as_pin_mut() else {
            return Poll::Pending;
        };
        let response = ready!(response.poll(cx));
        let outcome = this.settings.feedback.read(response.as_ref());
        let is_whole = match &response {
            Ok(response) => response.body().is_end_stream(),
            Err(_) => true,
        };
        drop(
            this.permit
                .take_if(|permit| !permit.read(outcome, is_whole)),
        );
        Poll::Ready(match response {
            Ok(response) => Ok(response.map(|body| PermitBody::new(body, this.permit.take()))),
            Err(error) => Err(Error::Inner(error)),
        })
    }
}

impl<S, F> fmt::Debug for SentCall<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentCall")
            .field("is_sent", &self.is_sent())
            .finish_non_exhaustive()
    }
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
