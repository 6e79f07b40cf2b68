//! The request limit: a permit for each request, until its response body ends.

pub(crate) mod future;
pub(crate) mod layer;
pub(crate) mod outcome;
pub(crate) mod permit;
mod sent;

use std::{
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Buf;
use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;
use tower_tds_outcome::ReadOutcome;

use self::{
    future::ResponseFuture,
    layer::{Detached, RequestLimitLayer, Settings},
    outcome::ReadHyper,
    permit::PermitBody,
    sent::{Complete, SentCall},
};
use crate::error::{BoxError, Error};

/// Keeps requests inside a [`Limiter`](crate::Limiter)'s limits.
///
/// Put it outside the layers that a call waits for before it is sent, such as a token layer:
///
/// ```text
/// Retry -> RequestLimit -> BearerAuth -> Classify -> http client
/// ```
///
/// At its first poll, the response future joins a queue, first in, first out. Each poll checks that
/// the inner service is ready, then tries to take a permit, and once it has both it sends the
/// request in the same poll. While the inner service is not ready, later calls pass, and yours
/// keeps its place.
///
/// # Backpressure
/// `poll_ready` is always ready and reserves nothing: if you do not call a readied service, that
/// costs nothing. An outer `load_shed` therefore never sheds, and an outer `Buffer` never fills,
/// while an outer `ConcurrencyLimit` works as usual. To bound the wait, use
/// [`max_waiting`](RequestLimitLayer::max_waiting) and [`Limits::max_wait`](crate::Limits::max_wait).
///
/// Each call waits on its own clone of the inner service. If yours is not `Clone`, put a `Buffer`
/// inside, between this layer and the service, and give it a bound above the number of calls that
/// wait, because each of them keeps a place in it. Put a `ConcurrencyLimit` outside: inside, calls
/// that wait would use it up.
///
/// # Deadlines
/// Your call ends at the [`DeadlineAt`](tower_tds_outcome::DeadlineAt) in its request's extensions.
/// Nothing is sent after it, and the error holds the cause of the wait.
///
/// Under overload the deadline also decides which calls are sent, so that what is sent is answered.
/// The limiter measures how long responses usually take (the 95th percentile of the last 128). If
/// the queue and that time together are too long, your call is [rejected](Error::is_rejected) on
/// arrival. If too little time is left at its turn, it ends if another waiting call can use the
/// permit. Both are [deadline errors](Error::is_deadline).
///
/// Without a deadline a call waits for as long as it takes. If you queue a long batch of them, calls
/// with a deadline behind it are rejected until the batch is done.
///
/// # Cancel safety
/// Dropping a future that waits gives up its place. Once it has its permit, the request counts as
/// sent, because nothing shows that it is not. If its response never comes, it stays counted for
/// [`Limits::lost_after`](crate::Limits::lost_after) and the quota's interval: the service may still
/// count it. Where callers cancel often, complete their calls
/// ([`detached`](RequestLimitLayer::detached)). Over hyper's HTTP/1 client you can do better: declare
/// [`over_hyper_http1`](RequestLimitLayer::over_hyper_http1), and a dropped call that still waited
/// for its connection gives its permit back at once.
///
/// If a woken call is not polled within 5 ms, it loses its turn, and gets a permit at its next poll
/// if one is free. Any number of such calls delays the others by 10 ms in total.
///
/// # Clone
/// Clones share the limiter.
///
/// # Errors
/// Each failure is an [`Error`]. If the limiter ended the call, the error holds what the call
/// waited for and whether the request was sent; otherwise its source is the inner service's own
/// error.
///
/// If the inner service's error is boxed already, spawn `service.oneshot(request)` itself, and not an
/// async block around it: the compiler cannot prove that such a block is `Send`
/// (rust-lang/rust#102211). The same happens with tower's `Timeout`.
///
/// # Panics
/// If the call has to wait outside a tokio runtime with timers, its future panics.
///
/// # Examples
/// See the [crate's front page](crate).
#[derive(Debug, Clone)]
pub struct RequestLimit<S, F = ReadHyper, M = ()> {
    inner: S,
    settings: Arc<Settings<F>>,
    mode: PhantomData<M>,
}

// === impl RequestLimit ===

impl<S, F: Clone, M> Layer<S> for RequestLimitLayer<F, M> {
    type Service = RequestLimit<S, F, M>;

    fn layer(&self, inner: S) -> Self::Service {
        RequestLimit {
            inner,
            settings: Arc::new(self.settings.clone()),
            mode: PhantomData,
        }
    }
}

impl<S, F, R, B> Service<Request<R>> for RequestLimit<S, F>
where
    S: Service<Request<R>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    F: ReadOutcome,
    B: Body,
{
    type Response = Response<PermitBody<B>>;
    type Error = Error;
    type Future = ResponseFuture<S, Request<R>, F, S::Future>;

    #[inline]
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request<R>) -> Self::Future {
        ResponseFuture::new(self.inner.clone(), request, &self.settings, None)
    }
}

impl<S, F, R, B> Service<Request<R>> for RequestLimit<S, F, Detached>
where
    S: Service<Request<R>, Response = Response<B>, Error: Into<BoxError> + Send + 'static> + Clone,
    S::Future: Send + 'static,
    F: ReadOutcome + Send + Sync + 'static,
    B: Body<Data: Buf + Send, Error: Send> + Send + 'static,
{
    type Response = Response<PermitBody<B>>;
    type Error = Error;
    type Future = ResponseFuture<S, Request<R>, F, Pin<Box<S::Future>>, Detached>;

    #[inline]
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request<R>) -> Self::Future {
        let complete: Complete<Pin<Box<S::Future>>, F> = SentCall::complete;
        ResponseFuture::new(self.inner.clone(), request, &self.settings, Some(complete))
    }
}

#[cfg(test)]
mod tests;
