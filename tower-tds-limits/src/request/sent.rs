use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

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
