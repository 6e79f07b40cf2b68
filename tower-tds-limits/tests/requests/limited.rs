//! A limiter in front of a scripted service, and its callers.

use http::StatusCode;
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt};
use tower_tds_limits::{Error, Limiter, Limits, RequestLimit, RequestLimitLayer};

use crate::requests::service::{Scripted, request};

/// Clones share the layer and the service.
#[derive(Clone)]
pub(crate) struct Limited {
    /// Limiter with the pause of the layer.
    pub(crate) limiter: Limiter,
    pub(crate) layer: RequestLimitLayer,
    pub(crate) service: Scripted,
}

// === impl Limited ===

impl Limited {
    /// The default limits in front of `service`.
    pub(crate) fn before(service: Scripted) -> Self {
        Self::new(Limits::default(), service)
    }

    pub(crate) fn new(limits: Limits, service: Scripted) -> Self {
        Self::of(&Limiter::new(limits), service)
    }

    /// A stack of its own behind the same limits.
    pub(crate) fn of(limiter: &Limiter, service: Scripted) -> Self {
        let layer = RequestLimitLayer::new(limiter.clone());
        Self {
            limiter: layer.limiter().clone(),
            layer,
            service,
        }
    }

    /// A service whose calls wait for a permit.
    pub(crate) fn caller(&self) -> RequestLimit<Scripted> {
        self.layer.layer(self.service.clone())
    }

    /// A service whose calls are rejected if they would have to wait.
    pub(crate) fn shed(&self) -> RequestLimit<Scripted> {
        let layer = self.layer.clone().max_waiting(0);
        layer.layer(self.service.clone())
    }

    /// Makes `calls` calls at once, and waits for all of them.
    pub(crate) async fn calls(&self, calls: usize) -> Vec<StatusCode> {
        let caller = self.caller();
        let mut tasks = JoinSet::new();
        for _ in 0..calls {
            tasks.spawn(caller.clone().oneshot(request()));
        }
        let answers = tasks.join_all().await;
        let statuses = answers
            .into_iter()
            .map(|answer| answer.expect("an answer").status());
        statuses.collect()
    }
}

/// The limit's own error, of a call that was not sent.
pub(crate) fn unsent<T>(answer: Result<T, Error>) -> Option<Error> {
    answer.err().filter(|error| error.cause().is_some())
}
