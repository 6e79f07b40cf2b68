//! The layer, and the service, which records what an error needs.

use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower::BoxError;
use tower_layer::Layer;
use tower_service::Service;

use super::asked::Asked;
use super::future::{ClassifyFuture, Noted};
use crate::error::Error;
use crate::retry::request::DeadlineAt;

/// Turns every answer but a success into a typed [`Error`].
///
/// Use it innermost, right over the HTTP client, so that all layers above it see typed errors. See
/// [`Classify`] for the rules.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{BoxError, Layer, ServiceExt, service_fn};
/// use tower_tds_errors::{ClassifyLayer, Kind};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let client = service_fn(async |_: Request<()>| {
///     let mut response = Response::new(String::from("invalid token\n"));
///     *response.status_mut() = StatusCode::UNAUTHORIZED;
///     Ok::<_, BoxError>(response)
/// });
/// let error = ClassifyLayer::new().layer(client).oneshot(Request::new(())).await.unwrap_err();
/// assert_eq!(error.kind(), Kind::InvalidToken);
/// assert_eq!(error.message(), Some("invalid token"));
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ClassifyLayer {}

/// Turns every answer but a success into a typed [`Error`].
///
/// A 2xx, a 304 and a requested upgrade (101) pass unchanged: the same body type, not polled,
/// without an allocation. The one exception is an HTML page where the request accepts JSON or XML
/// only.
///
/// The body of every other response is read, for at most 16 KiB and a second, so that the
/// connection can be reused. The read also ends at the call's [`DeadlineAt`](crate::DeadlineAt). A
/// read that is cut costs text and not the kind.
///
/// A compressed body gives no message, and the status decides. Put a decompression layer below if
/// responses may be compressed.
///
/// # Backpressure
///
/// Readiness is the inner service's own.
///
/// # Cancel safety
///
/// Dropping the future drops the inner future or the body that is being read.
///
/// # Clone
///
/// Clones the inner service.
///
/// # Errors
///
/// An [`Error`] for each response that is not a success, and for each error of the inner service,
/// whose kind comes from the types in its chain.
#[derive(Clone, Debug)]
pub struct Classify<S> {
    inner: S,
}

// === impl ClassifyLayer ===

impl ClassifyLayer {
    /// Creates the layer with the crate's own table.
    ///
    /// For meanings of a particular service put a `map_err` right above it: see
    /// [`Error::set_kind`].
    #[must_use]
    pub const fn new() -> Self {
        Self {}
    }
}

impl<S> Layer<S> for ClassifyLayer {
    type Service = Classify<S>;

    fn layer(&self, inner: S) -> Classify<S> {
        Classify { inner }
    }
}

// === impl Classify ===

impl<S, B, R> Service<Request<B>> for Classify<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
    R: Body,
{
    type Response = Response<R>;
    type Error = Error;
    type Future = ClassifyFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner
            .poll_ready(cx)
            .map_err(|error| Error::from(error.into()))
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Read here, because a layer below the retry may have added headers.
        let noted = Noted {
            asked: Asked::of(request.headers()),
            method: request.method().clone(),
            uri: request.uri().clone(),
            deadline: request.extensions().get::<DeadlineAt>().map(|at| at.0),
        };
        ClassifyFuture::new(self.inner.call(request), noted)
    }
}
