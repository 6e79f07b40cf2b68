//! Shared parts of the benches: a service that does nothing, and a caller that costs nothing.

use std::{
    convert::Infallible,
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use http::{Request, Response};
use tower_service::Service;

pub mod made;
pub mod rows;
pub mod token;
pub mod tower_retry;
pub mod whole;

/// Answers at once, with the request's body.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Echo {}

/// Response future of [`Echo`]. It makes the response when it is polled, so it is as small to move
/// as a client's boxed future.
#[derive(Debug)]
pub struct EchoFuture<B> {
    body: Option<B>,
}

/// A service that clones its inner service for each call, as a caller of `oneshot` does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cloned<S> {
    inner: S,
}

// === impl Cloned ===

impl<S> Cloned<S> {
    /// Clones `inner` for each call.
    #[must_use]
    pub const fn new(inner: S) -> Self {
        Self { inner }
    }
}

impl<S, R> Service<R> for Cloned<S>
where
    S: Service<R> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    #[expect(
        clippy::panic,
        reason = "a bench whose service is not ready at once must not go on"
    )]
    fn call(&mut self, request: R) -> S::Future {
        let mut inner = self.inner.clone();
        match inner.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => inner.call(request),
            Poll::Ready(Err(_)) | Poll::Pending => panic!("the service is not ready at once"),
        }
    }
}

// === impl Echo ===

impl Echo {
    /// The bare service that every figure is compared with.
    #[must_use]
    pub const fn new() -> Self {
        Self {}
    }
}

impl<B: Unpin> Service<Request<B>> for Echo {
    type Response = Response<B>;
    type Error = Infallible;
    type Future = EchoFuture<B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        EchoFuture {
            body: Some(request.into_body()),
        }
    }
}

// === impl EchoFuture ===

impl<B: Unpin> Future for EchoFuture<B> {
    type Output = Result<Response<B>, Infallible>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut().body.take() {
            Some(body) => Poll::Ready(Ok(Response::new(body))),
            None => Poll::Pending,
        }
    }
}

/// Makes one call without a runtime, whose cost would be measured as well.
///
/// # Panics
/// If the service has to wait, or fails.
#[expect(
    clippy::panic,
    reason = "a bench that waits measures something else, and must not go on"
)]
pub fn call<S, R>(service: &mut S, request: R) -> S::Response
where
    S: Service<R>,
{
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(())) = service.poll_ready(&mut cx) else {
        panic!("the service is not ready at once");
    };
    let response = pin!(service.call(request));
    let Poll::Ready(Ok(response)) = response.poll(&mut cx) else {
        panic!("the service does not answer at once");
    };
    response
}
