//! The rule behind the promise: permits that come back after the proof of counting.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use crate::{Quota, gate::Earliest};

/// At most `permits` requests are live at any grant. A request is live from its grant until
/// `hold` after the response has proved that the service counted it.
///
/// Why no interval can then hold more: take any interval of the quota's length and, of the
/// requests counted in it, the one granted last. When it was granted each of the others was
/// live, because its proof is not older than its count, and its count is in the interval. So
/// there are fewer than `permits` others, whatever the delays were and in whatever order.
#[derive(Debug)]
pub(crate) struct ProofWindow {
    permits: usize,
    hold: Duration,
    /// Granted, and no proof yet.
    unproven: usize,
    /// When each proven permit comes back, in order: proofs come in order and `hold` is fixed.
    returns: VecDeque<Instant>,
}

// === impl ProofWindow ===

impl ProofWindow {
    pub(crate) fn new(quota: Quota) -> Self {
        Self {
            permits: usize::try_from(quota.requests().get()).unwrap_or(usize::MAX),
            hold: quota.hold(),
            unproven: 0,
            returns: VecDeque::new(),
        }
    }

    /// Permits live at `now`.
    pub(crate) fn live_at(&mut self, now: Instant) -> usize {
        while self.returns.front().is_some_and(|back| *back <= now) {
            self.returns.pop_front();
        }
        self.unproven.saturating_add(self.returns.len())
    }

    pub(crate) fn earliest_at(&mut self, now: Instant) -> Earliest {
        if self.live_at(now) < self.permits {
            return Earliest::Now;
        }
        self.returns
            .front()
            .map_or(Earliest::OnReturn, |back| Earliest::At(*back))
    }

    pub(crate) fn grant(&mut self) {
        self.unproven = self.unproven.saturating_add(1);
    }

    /// A request that was granted is proven to have been counted no later than `at`.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "a quota's interval is at most 366 days, which no clock overflows"
    )]
    pub(crate) fn prove_at(&mut self, at: Instant) {
        self.unproven = self.unproven.saturating_sub(1);
        self.returns.push_back(at + self.hold);
    }

    /// A request that was granted was never sent.
    pub(crate) fn withdraw(&mut self) {
        self.unproven = self.unproven.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests;
