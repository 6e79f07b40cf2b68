//! The guard of a success's body: it bounds stalls, detects a cut, and applies the deadline.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Method, Request, Response, Uri};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use self::body::{Framing, GuardBody};
use crate::retry::request::Until;

pub(crate) mod body;

/// Guards the bodies of successes, whose errors become this crate's.
///
/// Use it right over [`Classify`](crate::Classify), below decompression, because it counts the
/// bytes that the service announced. Without it a body's errors are the client's own, and the wait
/// for a stalled body has no bound.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, channel::Channel};
/// use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};
/// use tower_tds_errors::{ClassifyLayer, GuardLayer, Kind};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let silent = service_fn(async |_: Request<()>| {
///     let (mut bytes, body) = Channel::<&[u8], BoxError>::new(1);
///     bytes.send_data(b"half").await.ok();
///     std::mem::forget(bytes);
///     Ok::<_, BoxError>(Response::new(body))
/// });
/// let stack = ServiceBuilder::new()
///     .layer(GuardLayer::new().idle(Duration::from_secs(5)))
///     .layer(ClassifyLayer::new())
///     .service(silent);
/// let response = stack.oneshot(Request::new(())).await.unwrap();
/// let error = response.into_body().collect().await.map(drop).unwrap_err();
/// assert_eq!((error.kind(), error.received()), (Kind::Truncated, Some(4)));
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GuardLayer {
    /// The longest wait for a body's next bytes.
    idle: Duration,
}

/// Guards the bodies of successes.
///
/// # Backpressure
///
/// Readiness is the inner service's own.
///
/// # Cancel safety
///
/// Dropping the future or the body drops the inner one.
///
/// # Clone
///
/// Clones the inner service.
///
/// # Errors
///
/// The inner service's own. For those of the body see [`GuardBody`].
#[derive(Clone, Debug)]
pub struct Guard<S> {
    inner: S,
    idle: Duration,
}

pin_project! {
    /// The future of [`Guard`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the inner one.
    pub struct GuardFuture<F> {
        #[pin]
        inner: F,
        idle: Duration,
        until: Option<Instant>,
        // Moved into the body, whose errors need it.
        asked: Option<(Method, Uri)>,
    }
}

// === impl GuardLayer ===

impl GuardLayer {
    /// Allows stalls of up to 30 s, and bodies of any length.
    #[must_use]
    pub const fn new() -> Self {
        Self { idle: IDLE }
    }

    /// Sets the longest wait for a body's next bytes.
    #[must_use]
    pub const fn idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }
}

impl Default for GuardLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        let idle = self.idle;
        Guard { inner, idle }
    }
}

// === impl Guard ===

impl<S, B, R> Service<Request<B>> for Guard<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    type Response = Response<GuardBody<R>>;
    type Error = S::Error;
    type Future = GuardFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let until = request.extensions().get::<Until>();
        GuardFuture {
            until: until.map(|until| until.0),
            idle: self.idle,
            asked: Some((request.method().clone(), request.uri().clone())),
            inner: self.inner.call(request),
        }
    }
}

// === impl GuardFuture ===

impl<F, R, E> Future for GuardFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<GuardBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.inner.poll(cx))?;
        let framing = Framing::of(&response);
        let guarded =
            |body| GuardBody::new(body, framing, *this.idle, *this.until, this.asked.take());
        Poll::Ready(Ok(response.map(guarded)))
    }
}

impl<F> fmt::Debug for GuardFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardFuture").finish_non_exhaustive()
    }
}

/// Half of the time that gateways wait for the next bytes of a server (nginx,
/// `proxy_read_timeout`). A longer wait is a wait for a dead connection.
const IDLE: Duration = Duration::from_secs(30);
