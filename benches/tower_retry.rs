//! A retry policy as users of `tower::retry` write it.

use std::{
    future::{Ready, ready},
    sync::Arc,
};

use http::{Request, Response};
use tower::retry::{
    Policy,
    budget::{Budget, TpsBudget},
};

/// Retries a 5xx within a budget, and keeps a clone of the request.
#[derive(Clone, Debug, Default)]
pub struct ServerErrors {
    budget: Arc<TpsBudget>,
}

// === impl ServerErrors ===

impl<B: Clone, R, E> Policy<Request<B>, Response<R>, E> for ServerErrors {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<B>,
        result: &mut Result<Response<R>, E>,
    ) -> Option<Ready<()>> {
        match result {
            Ok(response) if !response.status().is_server_error() => {
                self.budget.deposit();
                None
            }
            Ok(_) | Err(_) => self.budget.withdraw().then(|| ready(())),
        }
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
    }
}
