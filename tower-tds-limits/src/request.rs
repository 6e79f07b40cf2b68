//! The request limit: a permit from the sending of a request to the end of its response body.

mod feedback;
mod future;
mod guard;
mod permit;
mod sent;

use std::{
    fmt,
    marker::PhantomData,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf;
use http::{Extensions, Request, Response};
use http_body::Body;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

pub(crate) use self::permit::RequestPermit;
pub use self::{
    feedback::{Feedback, Outcome, ReadResponse, ReadStatus},
    future::ResponseFuture,
    permit::PermitBody,
};
use self::{
    future::Bounds,
    sent::{Complete, SentCall},
};
use crate::{Error, Limiter};

/// Puts [`RequestLimit`] around a service.
///
/// Every service that the layer makes shares the limiter.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tower_tds_limits::{Limiter, Limits, RequestLimitLayer};
///
/// let layer = RequestLimitLayer::new(Limiter::new(Limits::default()))
///     .detached()
///     .max_waiting(1_000)
///     .max_wait(Duration::from_secs(30))
///     .answer_timeout(Duration::from_secs(10));
/// # drop(layer);
/// ```
#[must_use]
pub struct RequestLimitLayer<F = ReadStatus, M = ()> {
    limiter: Limiter,
    feedback: F,
    bounds: Bounds,
    mode: PhantomData<M>,
}

/// Keeps requests inside a [`Limiter`]'s limits.
///
/// Put it outside of whatever a call waits for before it can be sent, such as a token:
///
/// ```text
/// Retry -> RequestLimit -> BearerAuth -> Classify -> http client
/// ```
///
/// The response future takes a place in the queue at its first poll, first in, first out. Each poll
/// polls the inner service's readiness and, if it is ready, takes a permit. With both, the request
/// is sent in the same poll. While the inner service is not ready, later calls pass, and the call
/// keeps its place.
///
/// # Backpressure
/// `poll_ready` is always ready and reserves nothing: a readied service that is not called costs
/// nothing. An outer `load_shed` therefore never sheds, and an outer `Buffer` never fills. An outer
/// `ConcurrencyLimit` works as usual. Use [`max_waiting`](RequestLimitLayer::max_waiting) and
/// [`max_wait`](RequestLimitLayer::max_wait) to bound the wait. Calls wait on clones of the inner
/// service, so a layer that reserves in `poll_ready` (`ConcurrencyLimit`, `Buffer`) belongs outside
/// of this one.
///
/// # Cancel safety
/// Dropping a future that waits gives up its place. Dropping a future whose request was not sent
/// gives the permit back at once. A guard in the request's extensions shows whether it was sent,
/// for HTTP/1 clients that keep the extensions until they write the head, as hyper's do. In hyper's
/// dispatch queue, over HTTP/2 and in clients that convert requests, a dropped request counts as
/// sent. A request that was sent, and whose response never comes, stays counted for
/// [`Limits::lost_after`](crate::Limits::lost_after) and the quota's interval, because the service
/// may still count it. See [`detached`](RequestLimitLayer::detached) to complete such calls.
///
/// A woken call that is not polled within 5 ms loses its turn. It gets a permit at its next poll,
/// if one is free. Any number of such calls delays the others by 10 ms together.
///
/// # Clone
/// Clones share the limiter.
///
/// # Errors
/// - [`Error::Limit`]: the limiter did not let the call through, or ended it at a bound. The
///   [`LimitError`](crate::LimitError) holds what was waited for and whether the request was sent.
/// - [`Error::Inner`]: the inner service's own error.
///
/// # Panics
/// The future panics outside a tokio runtime with timers if it has to wait.
///
/// # Examples
/// See the [crate's front page](crate).
pub struct RequestLimit<S, F = ReadStatus, M = ()> {
    inner: S,
    settings: Arc<Settings<F>>,
    mode: PhantomData<M>,
}

/// The mode in which a dropped call whose request was sent is completed in the background.
#[derive(Debug, Clone, Copy)]
pub enum Detached {}

/// The settings that all services of a layer share.
pub(crate) struct Settings<F> {
    limiter: Limiter,
    feedback: F,
    bounds: Bounds,
}

// === impl RequestLimitLayer ===

impl RequestLimitLayer {
    /// Limits requests by `limiter`, and reads responses with [`ReadStatus`].
    pub fn new(limiter: Limiter) -> Self {
        let bounds = Bounds::new(limiter.limits().max_wait);
        Self {
            limiter,
            feedback: ReadStatus,
            bounds,
            mode: PhantomData,
        }
    }
}

impl<F, M> RequestLimitLayer<F, M> {
    /// Reads outcomes with `feedback`, for errors that show whether a request was answered or sent.
    pub fn feedback<G>(self, feedback: G) -> RequestLimitLayer<G, M> {
        RequestLimitLayer {
            limiter: self.limiter,
            feedback,
            bounds: self.bounds,
            mode: PhantomData,
        }
    }

    /// Completes dropped calls in the background.
    ///
    /// Use it where callers often cancel, for example behind a timeout. The service may count a
    /// cancelled request, so its permit cannot be used again before the response comes. Without
    /// this such a permit is lost for [`Limits::lost_after`](crate::Limits::lost_after); with it, the
    /// response is read and the connection stays open.
    ///
    /// Half of the callers cancelled after sending: 37 requests a second with it, 8 without
    /// (`cargo test -p tower-tds-limits --test requests half_of`).
    ///
    /// The inner service's future has to be `Send + Unpin + 'static`, as that of hyper's client is;
    /// put `.map_future(Box::pin)` above one that is not.
    ///
    /// # Cancel safety
    /// Dropping the future spawns the rest of the call on the current runtime. The rest ends after
    /// 10 s or 256 KiB of body. A call that was not sent is dropped.
    pub fn detached(self) -> RequestLimitLayer<F, Detached> {
        RequestLimitLayer {
            limiter: self.limiter,
            feedback: self.feedback,
            bounds: self.bounds,
            mode: PhantomData,
        }
    }

    /// Bounds the wait for a permit and for the inner service's readiness.
    ///
    /// The default is [`Limits::max_wait`](crate::Limits::max_wait). With zero a call that would
    /// have to wait is [rejected](crate::LimitError::is_rejected).
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.bounds.max_wait = Some(wait);
        self
    }

    /// Rejects calls while `calls` others wait. By default any number waits.
    ///
    /// # Examples
    /// ```
    /// use std::{convert::Infallible, num::NonZeroU32};
    /// use http::{Request, Response};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    /// use tower_tds_limits::{Error, Limiter, Limits, Quota, RequestLimitLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Error<Infallible>> {
    /// let limiter = Limiter::new(Limits::new(Quota::per_second(NonZeroU32::MIN)));
    /// let service = ServiceBuilder::new()
    ///     .layer(RequestLimitLayer::new(limiter).max_waiting(0))
    ///     .service(service_fn(async |_request: Request<String>| {
    ///         Ok::<_, Infallible>(Response::new(String::from("bus 307")))
    ///     }));
    ///
    /// service.clone().oneshot(Request::new(String::new())).await?;
    /// let Err(Error::Limit(error)) = service.oneshot(Request::new(String::new())).await else {
    ///     panic!("one a second");
    /// };
    /// assert!(error.is_rejected());
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_waiting(mut self, calls: usize) -> Self {
        self.bounds.max_waiting = calls;
        self
    }

    /// Ends a call at the instant that `deadline` reads from the request's extensions.
    ///
    /// Nothing is sent after it. The error holds what the call waited for.
    ///
    /// # Examples
    /// ```
    /// use tokio::time::Instant;
    /// use tower_tds_limits::{Limiter, Limits, RequestLimitLayer};
    ///
    /// #[derive(Clone, Copy)]
    /// struct Deadline(Instant);
    ///
    /// let layer = RequestLimitLayer::new(Limiter::new(Limits::default()))
    ///     .deadline_from(|extensions| extensions.get::<Deadline>().map(|deadline| deadline.0));
    /// # drop(layer);
    /// ```
    pub fn deadline_from(mut self, deadline: fn(&Extensions) -> Option<Instant>) -> Self {
        self.bounds.deadline = Some(deadline);
        self
    }

    /// Bounds the time from the sending of a request to its response head.
    ///
    /// A request is sent when its head is written: the waits for a permit, a token and a connection
    /// do not count. Give connects a timeout of their own. A token layer below may hold a refused call
    /// for up to 10 s: allow more than that.
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.bounds.answer = Some(timeout);
        self
    }
}

impl<S, F: Clone, M> Layer<S> for RequestLimitLayer<F, M> {
    type Service = RequestLimit<S, F, M>;

    fn layer(&self, inner: S) -> Self::Service {
        let settings = Settings {
            limiter: self.limiter.clone(),
            feedback: self.feedback.clone(),
            bounds: self.bounds,
        };
        RequestLimit {
            inner,
            settings: Arc::new(settings),
            mode: PhantomData,
        }
    }
}

impl<F: Clone, M> Clone for RequestLimitLayer<F, M> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            feedback: self.feedback.clone(),
            bounds: self.bounds,
            mode: PhantomData,
        }
    }
}

impl<F, M> fmt::Debug for RequestLimitLayer<F, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestLimitLayer")
            .field("limiter", &self.limiter)
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

// === impl RequestLimit ===

impl<S, F, R, B> Service<Request<R>> for RequestLimit<S, F>
where
    S: Service<Request<R>, Response = Response<B>> + Clone,
    F: Feedback<Response<B>, S::Error>,
    B: Body,
{
    type Response = Response<PermitBody<B>>;
    type Error = Error<S::Error>;
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
    S: Service<Request<R>, Response = Response<B>, Error: Send + 'static> + Clone,
    S::Future: Send + Unpin + 'static,
    F: Feedback<Response<B>, S::Error> + Send + Sync + 'static,
    B: Body<Data: Buf + Send, Error: Send> + Send + 'static,
{
    type Response = Response<PermitBody<B>>;
    type Error = Error<S::Error>;
    type Future = ResponseFuture<S, Request<R>, F, S::Future>;

    #[inline]
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request<R>) -> Self::Future {
        let complete: Complete<S::Future, F> = SentCall::complete;
        ResponseFuture::new(self.inner.clone(), request, &self.settings, Some(complete))
    }
}

impl<S: Clone, F, M> Clone for RequestLimit<S, F, M> {
    #[inline]
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            settings: Arc::clone(&self.settings),
            mode: PhantomData,
        }
    }
}

impl<S: fmt::Debug, F, M> fmt::Debug for RequestLimit<S, F, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestLimit")
            .field("inner", &self.inner)
            .field("limiter", &self.settings.limiter)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
