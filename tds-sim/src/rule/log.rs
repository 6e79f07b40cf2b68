//! The sliding log that forgives the refused.

use std::time::Duration;

use super::recent::Recent;

/// Accepts while fewer than `limit` were accepted in `(now - per, now]`.
#[derive(Debug)]
pub(super) struct Log {
    limit: u32,
    accepted: Recent,
}

// === impl Log ===

impl Log {
    pub(super) fn new(limit: u32, per: Duration) -> Self {
        Self {
            limit,
            accepted: Recent::new(per),
        }
    }

    pub(super) fn arrive_at(&mut self, now: Duration) -> bool {
        let accept = self.accepted.count_at(now) < self.limit;
        if accept {
            self.accepted.push(now);
        }
        accept
    }
}
