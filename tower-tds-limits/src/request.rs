//! The request limit: a permit from the grant to the end of the response body.

mod body;
mod detach;
mod feedback;
mod future;
mod loan;
mod permit;
mod turn;

use std::{
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::Response;
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

pub(crate) use self::permit::RequestPermit;
pub use self::{
    body::PermitBody,
    detach::{Detach, DetachFuture, DetachLayer, held},
    feedback::{Feedback, Outcome, ReadResponse, ReadStatus},
    future::ResponseFuture,
};
use self::{future::Waiting, loan::Inner, turn::Turn};
use crate::{Error, Limiter, clock};

/// Puts [`RequestLimit`] around a service.
///
/// Every service the layer makes shares the limiter. See [`RequestLimit`] for the contract.
#[must_use]
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
///
/// A readied instance that is kept costs the others nothing after 50 ms: its permit is withdrawn, as
/// it is by a pause or a silence that begins. Its call takes another, at once or in the response
/// future, before all who have had none. The inner service is not called before that. It is lent to
/// that future, and the instance is ready again when it is back: when the call is made, or its future
/// dropped. So whoever calls an instance again while such a future waits polls that as well; a clone
/// needs not wait.
///
/// A response that is kept while nobody reads its body keeps its place in flight: whoever makes many
/// calls at once reads each body where the call was made, and does not wait for all responses first.
///
/// While one waits, for the end of a pause, too, the inner service's readiness is held. A limit
/// below this one that others share, as tower's `GlobalConcurrencyLimitLayer`, is then held for
/// nothing by a credential that pauses: put it above.
///
/// # Cancel safety
/// Dropping the response future or the body frees the place in flight at once. A request whose
/// response never came stays counted for [`Limits::lost_after`](crate::Limits::lost_after) and
/// the quota's interval more, because the service may still count it; so does one that waits for its
/// connection, of which nobody here knows whether it was sent. One that waits here is not counted.
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
/// `poll_ready` and `call` outside of a tokio runtime with timers when they have to wait.
///
/// # Examples
/// See the [crate's front page](crate).
#[derive(Debug, Clone)]
pub struct RequestLimit<S, F = ReadStatus> {
    inner: Inner<S>,
    feedback: F,
    turn: Turn,
}

// === impl RequestLimitLayer ===

impl RequestLimitLayer {
    /// Limits by `limiter`, and reads answers by the contract's statuses.
    pub fn new(limiter: Limiter) -> Self {
        Self {
            max_wait: limiter.limits().max_wait,
            limiter,
            feedback: ReadStatus,
        }
    }
}

impl<F> RequestLimitLayer<F> {
    /// Reads outcomes by `feedback` instead: for services whose errors can tell whether a
    /// request was answered or never sent.
    pub fn feedback<G>(self, feedback: G) -> RequestLimitLayer<G> {
        RequestLimitLayer {
            limiter: self.limiter,
            feedback,
            max_wait: self.max_wait,
        }
    }

    /// Bounds the wait for a permit here; the default is [`Limits::max_wait`](crate::Limits::max_wait).
    ///
    /// A readied instance that was kept for so long that its permit was withdrawn has the same bound
    /// once more, from its call on.
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
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = Some(wait);
        self
    }
}

impl<S, F: Clone> Layer<S> for RequestLimitLayer<F> {
    type Service = RequestLimit<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        RequestLimit {
            inner: Inner::new(inner),
            feedback: self.feedback.clone(),
            turn: Turn::new(&self.limiter.credential, self.max_wait),
        }
    }
}

// === impl RequestLimit ===

impl<S, F, Request, B> Service<Request> for RequestLimit<S, F>
where
    S: Service<Request, Response = Response<B>>,
    F: Feedback<Response<B>, S::Error> + Clone,
    B: Body,
{
    type Response = Response<PermitBody<B>>;
    type Error = Error<S::Error>;
    type Future = ResponseFuture<S, Request, F>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let inner = |cx: &mut Context<'_>| self.inner.poll_ready(cx);
        self.turn.poll_ready(cx, inner).map_err(Error::Inner)
    }

    #[inline]
    fn call(&mut self, request: Request) -> Self::Future {
        match self.turn.take() {
            Ok(Some(permit)) => {
                let response = self.inner.call(request);
                ResponseFuture::called(response, permit, self.feedback.clone())
            }
            // It was kept for so long that its permit is another's: it takes the next, in the order of calls.
            Ok(None) => self.call_later(request),
            Err(error) => ResponseFuture::refused(error),
        }
    }
}

impl<S, F: Clone> RequestLimit<S, F> {
    #[cold]
    fn call_later<Request>(&mut self, request: Request) -> ResponseFuture<S, Request, F>
    where
        S: Service<Request>,
    {
        let feedback = self.feedback.clone();
        let since = clock::now();
        let mut turn = self.turn.late(since);
        // Nobody is to be woken before the future is polled.
        let mut cx = Context::from_waker(Waker::noop());
        match turn.poll_take(&mut cx, since) {
            Poll::Ready(Ok(permit)) => {
                ResponseFuture::called(self.inner.call(request), permit, feedback)
            }
            Poll::Ready(Err(error)) => ResponseFuture::refused(error),
            Poll::Pending => ResponseFuture::waiting(Waiting {
                turn,
                since,
                inner: self.inner.lend(),
                request,
                feedback,
            }),
        }
    }
}
