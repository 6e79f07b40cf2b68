//! The sliding log that remembers the refused.

use std::time::Duration;

use super::recent::Recent;

/// Accepts while fewer than `limit` others arrived in `(now - per, now]`.
#[derive(Debug)]
pub(super) struct LogAll {
    limit: u32,
    /// The last `limit` arrivals at most: older ones change no answer, and a flood of refused
    /// requests must not fill the memory.
    arrived: Recent,
}

// === impl LogAll ===

impl LogAll {
    pub(super) fn new(limit: u32, per: Duration) -> Self {
        Self {
            limit,
            arrived: Recent::new(per),
        }
    }

    pub(super) fn arrive_at(&mut self, now: Duration) -> bool {
        let accept = self.arrived.count_at(now) < self.limit;
        self.arrived.push(now);
        if !accept {
            self.arrived.forget_oldest();
        }
        accept
    }
}
