//! Safe against counters that weigh the window before: `previous * (1 - x) + current`.
//!
//! Such a counter keeps two numbers for windows that begin at a time `phi` nobody tells. Each
//! proof is put at the latest instant at which its request can have been counted, each unproven
//! request at now, and one more may be sent if the sum fits for *every* `phi`. Moving a count
//! later never lowers such a sum, so the server's own sum, whichever its `phi`, fits too.
//!
//! The sum for one `phi`, with `N(t)` the proofs before `t`, `P` the period, `G` the requests
//! granted so far, and `K = G + 1 - limit`, fits from the time on at which
//! `N(phi) - (1 - (now - phi)/P) * (N(phi) - N(phi - P)) >= K`. That is
//! `phi + P * (K - N(phi - P)) / (N(phi) - N(phi - P))`, and only such `phi` matter that lie at a
//! proof or a period after one. Nothing in it depends on how many requests are unproven: a proof
//! does not change `K`, and the answer is one instant.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use crate::{Quota, gate::Earliest};

/// The sliding-window counter, over every alignment of its windows.
#[derive(Debug)]
pub(crate) struct Counter {
    limit: u64,
    period: Duration,
    /// Requests granted so far and not withdrawn.
    granted: u64,
    /// When requests were proven, in order, as far back as it matters.
    proofs: VecDeque<Instant>,
    /// Proofs forgotten because they are too old to matter.
    forgotten: u64,
}

// === impl Counter ===

#[expect(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "places are below the number of proofs, and a period is at most 366 days"
)]
impl Counter {
    pub(crate) fn new(quota: Quota) -> Self {
        Self {
            limit: u64::from(quota.requests().get()),
            period: quota.hold(),
            granted: 0,
            proofs: VecDeque::new(),
            forgotten: 0,
        }
    }

    pub(crate) fn earliest_at(&self, now: Instant) -> Earliest {
        let Some(k) = self.granted.checked_sub(self.limit) else {
            return Earliest::Now;
        };
        // From here on `k` is K - 1: the place of the K-th proof, counted from zero.
        let Some(place) = k.checked_sub(self.forgotten) else {
            return Earliest::Now;
        };
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        let Some(kth) = self.proofs.get(place).copied() else {
            return Earliest::OnReturn;
        };
        // No alignment holds one back for longer than two periods after that proof.
        if kth + self.period + self.period <= now {
            return Earliest::Now;
        }
        let earliest = self
            .held_by_windows_from_proofs(place)
            .max(self.held_by_windows_after_proofs(place));
        if earliest <= now {
            Earliest::Now
        } else {
            Earliest::At(earliest)
        }
    }

    /// The latest instant that a window demands which begins at a proof.
    fn held_by_windows_from_proofs(&self, kth: usize) -> Instant {
        let mut latest = self.proofs[kth] + self.period;
        let mut before = 0;
        for (count, phi) in self.proofs.iter().copied().enumerate().skip(kth + 1) {
            while self.proofs[before] + self.period <= phi {
                before += 1;
            }
            if before > kth {
                break;
            }
            latest = latest.max(phi + self.share(kth + 1 - before, count - before));
        }
        latest
    }

    /// The latest instant that a window demands which begins just before a period after a proof.
    fn held_by_windows_after_proofs(&self, kth: usize) -> Instant {
        let mut latest = self.proofs[kth] + self.period;
        let mut count = 0;
        for (before, proof) in self.proofs.iter().copied().enumerate().take(kth + 1) {
            let phi = proof + self.period;
            while self.proofs.get(count).is_some_and(|at| *at < phi) {
                count += 1;
            }
            if count > kth {
                latest = latest.max(phi + self.share(kth + 1 - before, count - before));
            }
        }
        latest
    }

    /// `period * part / whole`, rounded up.
    fn share(&self, part: usize, whole: usize) -> Duration {
        let nanos = (self.period.as_nanos() * (part as u128)).div_ceil(whole as u128);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    pub(crate) fn grant(&mut self) {
        self.granted = self.granted.saturating_add(1);
    }

    pub(crate) fn prove_at(&mut self, at: Instant) {
        self.proofs.push_back(at);
        while let Some(first) = self.proofs.front()
            && *first + self.period + self.period <= at
        {
            self.proofs.pop_front();
            self.forgotten = self.forgotten.saturating_add(1);
        }
    }

    pub(crate) fn withdraw(&mut self) {
        self.granted = self.granted.saturating_sub(1);
    }

    /// Permits live at `now`: granted, and not yet a period past their proof.
    pub(crate) fn live_at(&self, now: Instant) -> usize {
        let back = self.proofs.partition_point(|at| *at + self.period <= now);
        let back = u64::try_from(back).unwrap_or(u64::MAX);
        let live = self
            .granted
            .saturating_sub(self.forgotten.saturating_add(back));
        usize::try_from(live).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests;
