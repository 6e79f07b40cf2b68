//! Fixed windows of the clock.

use std::{num::NonZeroU128, time::Duration};

/// Accepts the first `limit` arrivals of each window `[k * per, (k + 1) * per)`.
#[derive(Debug)]
pub(super) struct FixedWindow {
    limit: u32,
    per: NonZeroU128,
    /// Which window was looked at last, and what it has accepted.
    window: u128,
    accepted: u32,
}

// === impl FixedWindow ===

impl FixedWindow {
    pub(super) fn new(limit: u32, per: Duration) -> Self {
        Self {
            limit,
            per: NonZeroU128::new(per.as_nanos()).unwrap_or(NonZeroU128::MIN),
            window: 0,
            accepted: 0,
        }
    }

    pub(super) fn arrive_at(&mut self, now: Duration) -> bool {
        let window = now.as_nanos() / self.per;
        if window != self.window {
            self.window = window;
            self.accepted = 0;
        }
        let accept = self.accepted < self.limit;
        if accept {
            self.accepted = self.accepted.saturating_add(1);
        }
        accept
    }
}
