//! What the owner of a handle has chosen.

use std::time::Duration;

use crate::{
    Provider, RefreshPolicy, TokenBudget,
    clock::Clock,
    event::Listener,
    store::{BOUND, Shelf},
};

/// The choices, as the builder collects them.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) provider: Provider,
    pub(super) timeout: Duration,
    /// For how long the HTTP client may be unready, if not for a timeout.
    pub(super) readiness: Option<Duration>,
    pub(super) policy: RefreshPolicy,
    pub(super) budget: TokenBudget,
    pub(super) clock: Clock,
    pub(super) listener: Listener,
    pub(super) store: Option<Shelf>,
}

// === impl Settings ===

impl Settings {
    pub(super) fn readiness(&self) -> Duration {
        self.readiness.unwrap_or(self.timeout)
    }

    /// For how long a process is given to get a token for all: the request, and three words with
    /// the store.
    pub(super) fn term(&self) -> Duration {
        self.timeout.saturating_add(BOUND.saturating_mul(3))
    }

    /// Longer than any flight: each key may take a timeout to come and another to be tried, and
    /// in between the client has to be ready. With a store another process may be waited for first.
    pub(super) fn patience(&self) -> Duration {
        let keys = u32::try_from(self.provider.sources().len()).unwrap_or(u32::MAX);
        let each = self.timeout.saturating_mul(2);
        let each = each.saturating_add(self.readiness());
        let own = each.saturating_mul(keys).saturating_add(self.timeout);
        match &self.store {
            Some(_) => own.saturating_add(self.term().saturating_mul(keys.saturating_mul(2))),
            None => own,
        }
    }
}
