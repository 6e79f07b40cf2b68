//! The request limit: a permit for each request, until its response body ends.

pub(crate) mod future;
pub(crate) mod permit;
mod sent;

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf;
use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use self::{future::ResponseFuture, permit::PermitBody};
use crate::{
    error::{BoxError, Error},
    limiter::Limiter,
};

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
///     .max_waiting(1_000)
///     .response_timeout(Duration::from_secs(10));
/// # drop(layer);
/// ```
#[must_use]
#[derive(Debug, Clone)]
pub struct RequestLimitLayer {
    limiter: Limiter,
}

/// Keeps requests inside a [`Limiter`](crate::Limiter)'s limits.
///
/// Put it outside the layers that a call waits for before it is sent, such as a token layer:
///
/// ```text
/// Retry -> RequestLimit -> BearerAuth -> Classify -> http client
/// ```
///
/// At its first poll, the response future joins a queue: the call that must start first is first, and
/// alike calls are served in the order of their arrival. Each poll checks that the inner service is
/// ready, then tries to take a permit, and once it has both it sends the request in the same poll. While
/// the inner service is not ready, later calls pass, and yours keeps its rank in the queue.
///
/// It does not check a request's `Content-Length`, as the Retry of tower-tds-errors does: with one that is
/// not its body's, a server may read one request as two.
///
/// # Backpressure
/// `poll_ready` is always ready and reserves nothing: if you do not call a readied service, that
/// costs nothing. An outer `load_shed` therefore never sheds, and an outer `Buffer` never fills,
/// while an outer `ConcurrencyLimit` works as usual. To bound the wait, use
/// [`max_waiting`](RequestLimitLayer::max_waiting) and deadlines.
///
/// Each call waits on its own clone of the inner service. If yours is not `Clone`, put a `Buffer`
/// inside, between this layer and the service, and give it a bound above the number of calls that
/// wait, because each of them takes up room in it. Put a `ConcurrencyLimit` outside: inside, calls
/// that wait would use it up.
///
/// # Deadlines
/// Your call ends at the [`DeadlineAt`](tower_tds_outcome::DeadlineAt) in its request's extensions.
/// Nothing is sent after it, and the error holds the cause of the wait. If a client that
/// [marks](tower_tds_outcome::HandOver) its requests has sent yours, the error says so.
///
/// Under overload the deadline also decides which calls are sent, so that what is sent is answered.
/// The limiter measures how long calls usually take, from their permit to their head, or to the end of
/// their body if you declare that the deadline [includes it](tower_tds_outcome::DeadlineAt::covers_body).
/// Calls come in the order in which they must start: at the deadline less the usual time. If too little
/// time is left at its turn, a call is [rejected](Error::is_rejected), which is a
/// [deadline error](Error::is_deadline). Under long deadlines it learns that late, so set
/// [`max_waiting`](RequestLimitLayer::max_waiting). A reader's own slowness is not reserved for. At .9 to
/// 2.4 times the quota, with deadlines of one and two seconds, 99 % of what is sent is answered
/// (`cargo test -p suites requests::overload`).
///
/// Without a deadline a call waits for as long as it takes, like one that has a minute.
///
/// # Cancel safety
/// A future that waits leaves the queue when you drop it. From its permit on it depends on the client, which
/// finds its marks in the request's [deadline](tower_tds_outcome::DeadlineAt):
///
/// | the client has | then a dropped call |
/// |---|---|
/// | marked the request as [held](tower_tds_outcome::Handed::Held) | is dropped, and its permit returns at once |
/// | marked it as [taken](tower_tds_outcome::Handed::Taken) | is completed by a task, for at most 256 KiB of body, and for 10 s or [`lost_after`](crate::Limits::lost_after) |
/// | marked nothing, or the call has no deadline | counts as sent, and is completed in the same way, but not beyond its deadline |
///
/// The service may have counted a request that was sent, so its permit is only safe to reuse once the
/// response is there. If that never comes, or if there is no runtime for the task, the request stays
/// counted for [`Limits::lost_after`](crate::Limits::lost_after) and the quota's interval. If the client
/// marks that the peer has [ended](tower_tds_outcome::Handed::Ended) the connection, half a second stands
/// for the former; its error alone does not show that, because a proxy may have ended it.
///
/// If a woken call is not polled within 5 ms, it loses its turn, and gets a permit at its next poll
/// if one is free. Any number of such calls delays the others by some 10 ms in total.
///
/// Because a task may complete its future, the inner service's must be `Send + 'static`.
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
pub struct RequestLimit<S> {
    inner: S,
    limiter: Limiter,
}

// === impl RequestLimitLayer ===

impl RequestLimitLayer {
    /// Limits requests with `limiter`. After a 429 the services of this layer and its clones pause, and
    /// those of other layers do not.
    pub fn new(limiter: Limiter) -> Self {
        Self {
            limiter: limiter.another(limiter.stack.priority),
        }
    }

    /// Returns a handle to the limiter, whose [snapshot](Limiter::snapshot) holds the pause of this
    /// layer's services after a 429.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Rejects calls while `calls` others wait; by default any number may wait. With zero, a call
    /// that would have to wait is [rejected](crate::Error::is_rejected).
    ///
    /// # Examples
    /// ```
    /// use std::{convert::Infallible, num::NonZeroU32};
    /// use http::{Request, Response};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    /// use tower_tds_limits::{Error, Limiter, Limits, Quota, RequestLimitLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Error> {
    /// let limiter = Limiter::new(Limits::new(Quota::per_second(NonZeroU32::MIN)));
    /// let service = ServiceBuilder::new()
    ///     .layer(RequestLimitLayer::new(limiter).max_waiting(0))
    ///     .service(service_fn(async |_request: Request<String>| {
    ///         Ok::<_, Infallible>(Response::new(String::from("bus 307")))
    ///     }));
    ///
    /// service.clone().oneshot(Request::new(String::new())).await?;
    /// let error = service.oneshot(Request::new(String::new())).await.expect_err("one a second");
    /// assert!(error.is_rejected());
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_waiting(mut self, calls: usize) -> Self {
        Arc::make_mut(&mut self.limiter.stack).max_waiting = calls;
        self
    }

    /// Bounds the time from when a request is sent to its response head.
    ///
    /// Waits for a permit and a token do not count. Neither does the wait for a connection, if your
    /// client [marks](tower_tds_outcome::HandOver) its requests and they have deadlines; then give
    /// connects their own timeout.
    /// Allow more than 10 s above a token layer, which may hold a call for that long if its token was
    /// refused (401).
    ///
    /// A call that this ends is dropped and not completed: its connection ends at once, so the permit
    /// of a socket that died returns after 30 s.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.limiter.stack).answer = Some(timeout);
        self
    }
}

impl<S> Layer<S> for RequestLimitLayer {
    type Service = RequestLimit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RequestLimit {
            inner,
            limiter: self.limiter.clone(),
        }
    }
}

// === impl RequestLimit ===

impl<S, R, B> Service<Request<R>> for RequestLimit<S>
where
    S: Service<Request<R>, Response = Response<B>, Error: Into<BoxError> + 'static> + Clone,
    S::Future: Send + 'static,
    B: Body<Data: Buf + Send, Error: Send> + Send + 'static,
{
    type Response = Response<PermitBody<B>>;
    type Error = Error;
    type Future = ResponseFuture<S, R>;

    #[inline]
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request<R>) -> Self::Future {
        ResponseFuture::new(self.inner.clone(), request, &self.limiter.stack)
    }
}

#[cfg(test)]
mod tests;
