//! The request limit for those who would rather do without than wait.

use std::task::{Context, Poll};

use http::Response;
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    Error, Limiter,
    request::{Feedback, PermitBody, ReadStatus, RequestLimit, RequestLimitLayer, ResponseFuture},
};

/// Puts [`RequestShed`] around a service.
#[derive(Debug, Clone)]
pub struct RequestShedLayer<F = ReadStatus> {
    limit: RequestLimitLayer<F>,
}

/// As [`RequestLimit`], and rejects at once what it would have to wait for.
///
/// Use it where a late answer is worth nothing. It shares its limiter with whatever else does; it
/// never passes those who wait, so beside a busy [`RequestLimit`] it rejects everything.
///
/// # Backpressure
/// `poll_ready` waits for the inner service alone, and then takes a permit or does not. Once a
/// pause after a 429 is over, the next call tries; the others are rejected until it is answered.
///
/// # Cancel safety
/// As [`RequestLimit`]'s.
///
/// # Clone
/// As [`RequestLimit`]'s.
///
/// # Errors
/// The response future gives a [`LimitError`](crate::LimitError) that
/// [`is_rejected`](crate::LimitError::is_rejected) where there was no permit; it says after how
/// long there will be one, where that is known.
///
/// # Examples
/// ```
/// use std::{convert::Infallible, num::NonZeroU32};
/// use http::{Request, Response};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_tds_limits::{Error, Limiter, Limits, Quota, RequestShedLayer};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Error<Infallible>> {
/// let limiter = Limiter::new(Limits::new(Quota::per_second(NonZeroU32::MIN)));
/// let service = ServiceBuilder::new()
///     .layer(RequestShedLayer::new(limiter))
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
#[derive(Debug, Clone)]
pub struct RequestShed<S, F = ReadStatus> {
    limit: RequestLimit<S, F>,
}

// === impl RequestShedLayer ===

impl RequestShedLayer {
    /// Limits by `limiter`, and reads responses by the contract's statuses.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self {
            limit: RequestLimitLayer::new(limiter),
        }
    }
}

impl<F> RequestShedLayer<F> {
    /// Reads outcomes by `feedback` instead.
    #[must_use]
    pub fn feedback<G>(self, feedback: G) -> RequestShedLayer<G> {
        RequestShedLayer {
            limit: self.limit.feedback(feedback),
        }
    }
}

impl<S, F: Clone> Layer<S> for RequestShedLayer<F> {
    type Service = RequestShed<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        RequestShed {
            limit: self.limit.layer(inner),
        }
    }
}

// === impl RequestShed ===

impl<S, F, Request, B> Service<Request> for RequestShed<S, F>
where
    S: Service<Request, Response = Response<B>>,
    F: Feedback<Response<B>, S::Error> + Clone,
    B: Body,
{
    type Response = Response<PermitBody<B>>;
    type Error = Error<S::Error>;
    type Future = ResponseFuture<S::Future, F>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.limit.poll_ready_or_reject(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        self.limit.call(request)
    }
}
