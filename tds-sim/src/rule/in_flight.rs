//! Requests in flight during an interval.

use std::time::Duration;

use super::recent::Recent;

/// Accepts while fewer than `limit` were in flight at some instant of `(now - per, now]`.
///
/// A request was in flight in the interval if it has not ended or if its end lies in it: its
/// arrival is never later than `now`.
#[derive(Debug)]
pub(super) struct InFlight {
    limit: u32,
    open: u32,
    ended: Recent,
}

// === impl InFlight ===

impl InFlight {
    pub(super) fn new(limit: u32, per: Duration) -> Self {
        Self {
            limit,
            open: 0,
            ended: Recent::new(per),
        }
    }

    pub(super) fn arrive_at(&mut self, now: Duration) -> bool {
        let accept = self.open.saturating_add(self.ended.count_at(now)) < self.limit;
        if accept {
            self.open = self.open.saturating_add(1);
        }
        accept
    }

    /// An end without an arrival is nobody's: it changes nothing.
    pub(super) fn end_at(&mut self, now: Duration) {
        if self.open > 0 {
            self.open = self.open.saturating_sub(1);
            self.ended.push(now);
        }
    }
}
