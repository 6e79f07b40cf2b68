//! Answers that say when their sockets are idle, beneath whatever takes responses apart.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::PermitBody;

/// Has each answer tell a [`ConnectionLimit`](crate::ConnectionLimit) when its body has ended, and
/// with it the use of its socket.
///
/// A [`RequestLimit`](crate::RequestLimit) does that by itself where responses reach it. Put
/// this right around the client where a layer between them makes errors of some responses, or
/// where there is no such limit. Whoever tracks a response further out has nothing to do.
///
/// # Backpressure
/// Readiness is the inner service's own.
///
/// # Cancel safety
/// Dropping the future drops the inner one.
///
/// # Clone
/// As the inner service's.
///
/// # Errors
/// The inner service's own.
///
/// # Examples
/// ```
/// use http::{Request, Response};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_tds_limits::{Limiter, Limits, RequestLimitLayer, Track};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let limiter = Limiter::new(Limits::default());
/// let service = ServiceBuilder::new()
///     .layer(RequestLimitLayer::new(limiter))
///     // Here would be what makes errors of some responses.
///     .layer_fn(Track::new)
///     .service(service_fn(async |_request: Request<String>| {
///         Ok::<_, std::io::Error>(Response::new(String::from("bus 307")))
///     }));
/// let response = service.oneshot(Request::new(String::new())).await;
/// # assert!(response.is_ok());
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Track<S> {
    inner: S,
}

pin_project! {
    /// The response of a [`Track`].
    ///
    /// # Cancel safety
    /// Dropping it drops the inner one.
    #[derive(Debug)]
    pub struct TrackFuture<F> {
        #[pin]
        inner: F,
    }
}

// === impl Track ===

impl<S> Track<S> {
    /// Tracks the bodies of `inner`.
    pub const fn new(inner: S) -> Self {
        Self { inner }
    }
}

impl<S, Request, B> Service<Request> for Track<S>
where
    S: Service<Request, Response = Response<B>>,
    B: Body,
{
    type Response = Response<PermitBody<B>>;
    type Error = S::Error;
    type Future = TrackFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        TrackFuture {
            inner: self.inner.call(request),
        }
    }
}

// === impl TrackFuture ===

impl<F, B, E> Future for TrackFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<PermitBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().inner.poll(cx).map_ok(PermitBody::tracked)
    }
}
