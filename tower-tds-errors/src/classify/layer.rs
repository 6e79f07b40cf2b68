//! The layer: data, which is the user's rules.

use std::sync::Arc;

use tower_layer::Layer;

use super::Classify;
use super::rule::Rule;

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
#[derive(Clone, Debug, Default)]
pub struct ClassifyLayer {
    /// Nothing for no rules: then the way of a success counts no reference.
    rules: Option<Arc<Vec<Rule>>>,
}

// === impl ClassifyLayer ===

impl ClassifyLayer {
    /// The layer, with the crate's own table and no rules besides.
    #[must_use]
    pub const fn new() -> Self {
        Self { rules: None }
    }

    /// Adds a rule after those that are there.
    ///
    /// With a rule, each request's headers are copied, for the rules to see.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        let rules = self.rules.get_or_insert_default();
        Arc::make_mut(rules).push(rule);
        self
    }
}

impl<S> Layer<S> for ClassifyLayer {
    type Service = Classify<S>;

    fn layer(&self, inner: S) -> Classify<S> {
        Classify::with(inner, self.rules.clone())
    }
}
