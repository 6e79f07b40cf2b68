use tower_layer::Layer;

use crate::{ConnectionLimit, Limiter};

/// Puts [`ConnectionLimit`] around a connector.
///
/// Every connector the layer makes shares the limiter. See [`ConnectionLimit`] for the contract.
///
/// # Examples
/// ```
/// use hyper_util::{
///     client::legacy::{Client, connect::HttpConnector},
///     rt::TokioExecutor,
/// };
/// use tower_layer::Layer;
/// use tower_tds_limits::{ConnectionLimitLayer, Limiter, Limits};
///
/// let limiter = Limiter::new(Limits::default());
/// let connector = ConnectionLimitLayer::new(limiter).layer(HttpConnector::new());
/// let client: Client<_, String> = Client::builder(TokioExecutor::new()).build(connector);
/// # drop(client);
/// ```
#[derive(Debug, Clone)]
pub struct ConnectionLimitLayer {
    limiter: Limiter,
}

// === impl ConnectionLimitLayer ===

impl ConnectionLimitLayer {
    /// Limits by `limiter`.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self { limiter }
    }
}

impl<C> Layer<C> for ConnectionLimitLayer {
    type Service = ConnectionLimit<C>;

    fn layer(&self, inner: C) -> Self::Service {
        ConnectionLimit::new(inner, &self.limiter)
    }
}
