//! What the owner of a handle has chosen.

use std::time::Duration;

use crate::{Budget, Policy, Provider, clock::Clock, event::Listener};

/// The choices, as the builder collects them.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) provider: Provider,
    pub(super) timeout: Duration,
    pub(super) policy: Policy,
    pub(super) budget: Budget,
    pub(super) clock: Clock,
    pub(super) listener: Listener,
}

// === impl Settings ===

impl Settings {
    /// Longer than any flight: each key may take a timeout to come, and another to be tried.
    pub(super) fn patience(&self) -> Duration {
        let keys = u32::try_from(self.provider.sources().len()).unwrap_or(u32::MAX);
        self.timeout
            .saturating_mul(keys.saturating_mul(2).saturating_add(1))
    }
}
