//! The request limit: a permit from the grant to the end of the response body.

mod body;
mod detach;
mod feedback;
mod future;
mod permit;
mod served;

use std::{
    fmt,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::Response;
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

pub use self::{
    body::PermitBody,
    detach::{Detach, DetachFuture, DetachLayer},
    feedback::{Feedback, Outcome, ReadResponse, ReadStatus},
    future::ResponseFuture,
    served::Served,
};
pub(crate) use self::{detach::held, permit::RequestPermit};
use crate::{
    Error, Limiter,
    credential::{PauseWaiter, Probe},
    queue::Readiness,
};

/// Puts [`RequestLimit`] around a service.
///
/// Every service the layer makes shares the limiter. See [`RequestLimit`] for the contract.
#[derive(Debug, Clone)]
pub struct RequestLimitLayer<F = ReadStatus> {
    limiter: Limiter,
    feedback: F,
    max_wait: Option<Duration>,
}

/// Keeps requests inside a [`Limiter`]'s limits, from their grant to the end of their bodies.
///
/// # Backpressure
/// `poll_ready` waits for the inner service first and then, first in, first out, for a permit,
/// which the readied instance holds until `call`. Dropping the readied instance gives the permit
/// back uncounted.
///
/// Whoever does not look when it is its turn is passed over after 5 ms, and passes when it looks.
/// A readied instance that is kept costs the others its own place, in flight and in the quota's
/// window, and nothing else: after 50 ms its moment in a bucket and in the even spacing is lost, and
/// its call waits for another in the response future. The inner service's future is made by then
/// and not polled until the moment is there; an inner service that sends in `call` itself, as
/// hyper's own `SendRequest` does, is not held back by that. With a longest wait of zero it is not called.
/// One that was readied before a 429 is sent into the pause. A response that is kept while nobody reads its body
/// keeps its place in flight too: whoever makes many calls at once reads each body where the call
/// was made, and does not wait for all responses first.
///
/// # Cancel safety
/// Dropping the response future or the body frees the place in flight at once. A request whose
/// response never came stays counted for [`Limits::lost_after`](crate::Limits::lost_after) and
/// the quota's interval more, because the service may still count it.
///
/// # Clone
/// Clones share the limiter; a clone has no permit and no place in the queue.
///
/// # Errors
/// The response future gives [`Error::Limit`] when the wait reached
/// [`max_wait`](RequestLimitLayer::max_wait), and [`Error::Inner`] for the inner service's
/// own. `poll_ready` gives only the inner service's.
///
/// # Panics
/// `call` panics with "`poll_ready` must give Ready before `call`" if that was not so, and
/// `poll_ready` outside of a tokio runtime when it has to wait for a time.
///
/// # Examples
/// See the [crate's front page](crate).
pub struct RequestLimit<S, F = ReadStatus> {
    inner: S,
    feedback: F,
    readiness: Readiness<RequestPermit>,
    pause: PauseWaiter,
    /// There if the next request tries whether a pause is over.
    probe: Option<Probe>,
}

// === impl RequestLimitLayer ===

impl RequestLimitLayer {
    /// Limits by `limiter`, and reads answers by the contract's statuses.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self {
            max_wait: limiter.limits().wait(),
            limiter,
            feedback: ReadStatus::new(),
        }
    }
}

impl<F> RequestLimitLayer<F> {
    /// Reads outcomes by `feedback` instead: for services whose errors can tell whether a
    /// request was answered or never sent.
    #[must_use]
    pub fn feedback<G>(self, feedback: G) -> RequestLimitLayer<G> {
        RequestLimitLayer {
            limiter: self.limiter,
            feedback,
            max_wait: self.max_wait,
        }
    }

    /// Bounds the wait for a permit here; the default is [`Limits::max_wait`](crate::Limits::max_wait).
    ///
    /// A readied instance that was kept for so long that its moment is lost has the same bound once
    /// more, from its call on.
    ///
    /// With zero nothing waits: a call without a permit at once is
    /// [rejected](crate::LimitError::is_rejected), and told when there will be one. It passes nobody
    /// who waits, so beside a busy service that waits it is always rejected.
    ///
    /// # Examples
    /// ```
    /// use std::{convert::Infallible, num::NonZeroU32, time::Duration};
    /// use http::{Request, Response};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    /// use tower_tds_limits::{Error, Limiter, Limits, Quota, RequestLimitLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Error<Infallible>> {
    /// let limiter = Limiter::new(Limits::new(Quota::per_second(NonZeroU32::MIN)));
    /// let service = ServiceBuilder::new()
    ///     .layer(RequestLimitLayer::new(limiter).max_wait(Duration::ZERO))
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
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = Some(wait);
        self
    }
}

impl<S, F: Clone> Layer<S> for RequestLimitLayer<F> {
    type Service = RequestLimit<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        RequestLimit {
            inner,
            feedback: self.feedback.clone(),
            readiness: self.limiter.request_readiness(self.max_wait),
            pause: PauseWaiter::default(),
            probe: None,
        }
    }
}

// === impl RequestLimit ===

impl<S, F> RequestLimit<S, F> {
    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service, to change it.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service alone.
    pub fn into_inner(self) -> S {
        self.inner
    }

    fn must_pause(&self) -> bool {
        self.probe.is_none() && self.readiness.source().is_paused()
    }

    /// Waits for the end of a pause, if there is one. Says whether the request may go on; if not,
    /// its error is decided.
    fn poll_pause_over(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // Whoever waits leaves in the order of coming, and not when the flag is seen to be clear.
        if !self.must_pause() && !self.pause.is_waiting() {
            return Poll::Ready(true);
        }
        // A place in the queue kept through a pause would keep others waiting.
        let since = self.readiness.step_back();
        let (credential, max_wait) = (self.readiness.source(), self.readiness.max_wait());
        let over = ready!(self.pause.poll_over(credential, since, max_wait, cx));
        let since = self.pause.take_since();
        Poll::Ready(match over {
            Ok(probe) => {
                self.probe = probe;
                if let Some(since) = since {
                    self.readiness.waiting_since(since);
                }
                true
            }
            Err(error) => {
                self.readiness.reject(error);
                false
            }
        })
    }
}

impl<S, F, Request, B> Service<Request> for RequestLimit<S, F>
where
    S: Service<Request, Response = Response<B>>,
    F: Feedback<Response<B>, S::Error> + Clone,
    B: Body,
{
    type Response = Response<PermitBody<B>>;
    type Error = Error<S::Error>;
    type Future = ResponseFuture<S::Future, F>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // A permit is only granted while it is polled for, so that nobody who waited in the queue
        // while a pause began is sent into it.
        if self.readiness.is_decided() || !ready!(self.poll_pause_over(cx)) {
            return Poll::Ready(Ok(()));
        }
        let ready = ready!(
            self.readiness
                .poll_ready(cx, |cx| self.inner.poll_ready(cx))
        );
        if !self.readiness.is_granted() {
            // Without a permit there is no try, and another may.
            self.probe = None;
        }
        Poll::Ready(ready.map_err(Error::Inner))
    }

    #[inline]
    fn call(&mut self, request: Request) -> Self::Future {
        match self.readiness.take() {
            Ok(mut permit) => {
                let waits = permit.send(self.probe.take(), self.readiness.max_wait());
                match waits {
                    Ok(moment) => {
                        let response = self.inner.call(request);
                        ResponseFuture::called(response, permit, moment, self.feedback.clone())
                    }
                    Err(error) => ResponseFuture::refused(error),
                }
            }
            Err(error) => ResponseFuture::refused(error),
        }
    }
}

impl<S: Clone, F: Clone> Clone for RequestLimit<S, F> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            feedback: self.feedback.clone(),
            readiness: self.readiness.another(),
            pause: PauseWaiter::default(),
            probe: None,
        }
    }
}

impl<S: fmt::Debug, F> fmt::Debug for RequestLimit<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestLimit")
            .field("inner", &self.inner)
            .field("readiness", &self.readiness)
            .finish_non_exhaustive()
    }
}
