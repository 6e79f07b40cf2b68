//! The layer: data, of which there is none yet.

use tower_layer::Layer;

use super::Classify;

/// Turns every answer but a success into a typed [`Error`](crate::Error).
///
/// Use it innermost, right over the HTTP client, so that all layers above it see typed errors. See
/// [`Classify`] for what it does to an answer.
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
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ClassifyLayer {}

// === impl ClassifyLayer ===

impl ClassifyLayer {
    /// The layer.
    #[must_use]
    pub const fn new() -> Self {
        Self {}
    }
}

impl<S> Layer<S> for ClassifyLayer {
    type Service = Classify<S>;

    fn layer(&self, inner: S) -> Classify<S> {
        Classify::new(inner)
    }
}
