//! What the owner of a handle has chosen.

use std::time::Duration;

use crate::{
    Budget, Policy, Provider,
    clock::Clock,
    event::Listener,
    store::{BOUND, Shelf},
};

/// The choices, as the builder collects them.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) provider: Provider,
    pub(super) timeout: Duration,
    pub(super) policy: Policy,
    pub(super) budget: Budget,
    pub(super) clock: Clock,
    pub(super) listener: Listener,
    pub(super) store: Option<Shelf>,
}

// === impl Settings ===

impl Settings {
    /// For how long a process is given to get a token for all: the request, and three words with
    /// the store.
    pub(super) fn term(&self) -> Duration {
        self.timeout.saturating_add(BOUND.saturating_mul(3))
    }

    /// Longer than any flight: each key may take a timeout to come, and another to be tried. With
    /// a store another process may be waited for first.
    pub(super) fn patience(&self) -> Duration {
        let keys = u32::try_from(self.provider.sources().len()).unwrap_or(u32::MAX);
        let own = self
            .timeout
            .saturating_mul(keys.saturating_mul(2).saturating_add(1));
        match &self.store {
            Some(_) => own.saturating_add(self.term().saturating_mul(keys.saturating_mul(2))),
            None => own,
        }
    }
}
