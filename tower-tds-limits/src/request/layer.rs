use tower_layer::Layer;

use crate::{
    Limiter,
    request::{ReadStatus, RequestLimit},
};

/// Puts [`RequestLimit`] around a service.
///
/// Every service the layer makes shares the limiter. See [`RequestLimit`] for the contract.
#[derive(Debug, Clone)]
pub struct RequestLimitLayer<F = ReadStatus> {
    limiter: Limiter,
    feedback: F,
}

// === impl RequestLimitLayer ===

impl RequestLimitLayer {
    /// Limits by `limiter`, and takes any response for a proof of counting.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            feedback: ReadStatus::new(),
        }
    }
}

impl<F> RequestLimitLayer<F> {
    /// Reads outcomes by `feedback` instead: for services whose errors can tell whether a
    /// request was answered or never sent.
    #[must_use]
    pub fn feedback<G>(self, feedback: G) -> RequestLimitLayer<G> {
        RequestLimitLayer {
            limiter: self.limiter,
            feedback,
        }
    }
}

impl<S, F: Clone> Layer<S> for RequestLimitLayer<F> {
    type Service = RequestLimit<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        RequestLimit::new(inner, &self.limiter, self.feedback.clone())
    }
}
