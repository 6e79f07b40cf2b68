//! Safe against counters that weigh the window before: `previous * (1 - x) + current`.
//!
//! Such a counter keeps two numbers for windows that begin at a time `phi` nobody tells. Each
//! proof is put at the latest instant at which its request can have been counted, each unproven
//! request at now, and one more may be sent if the sum fits for *every* `phi`. Moving a count
//! later never lowers such a sum, so the server's own sum, whichever its `phi`, fits too.
//!
//! With `N(t)` the proofs before `t`, `P` the period, `G` the requests granted so far and
//! `K = G + 1 - limit`, the sum for one `phi` fits as soon as `K` lies below the chord that joins
//! `N(phi - P)` and `N(phi)`, read at `now - P`: from `phi + P * (K - a) / (b - a)` on, with
//! `a = N(phi - P)` and `b = N(phi)`. Only chords matter that begin or end at a proof. What is
//! unproven appears nowhere: the answer for one `K` is one instant, and can be kept.

mod fits;

use std::num::NonZeroU64;

use self::fits::{Chord, Fits};
use crate::{clock::Tick, rule::window::ProofWindow};

/// The sliding-window counter, over every alignment of its windows.
#[derive(Debug)]
pub(crate) struct Counter {
    period: u64,
    /// In windows of thousands proofs are rounded up to multiples of this, so that there are
    /// never more than a few hundred chords. A later proof is a safe one.
    grain: Option<NonZeroU64>,
    /// From when on each `K` fits, by the chords so far: for all that can still be asked for.
    fits: Fits,
    /// Proofs at which a chord has ended.
    ended: u64,
    /// Proofs at which a chord has begun.
    begun: u64,
    /// Up to when chords were taken up.
    caught_up: Tick,
    /// The end of the last of them.
    last: Tick,
}

// === impl Counter ===

impl Counter {
    /// For the quota that `window` keeps.
    pub(crate) fn new(window: &ProofWindow) -> Self {
        let period = window.hold();
        let grain = period.checked_div(STEPS).and_then(NonZeroU64::new);
        Self {
            period,
            grain: grain.filter(|_| window.limit() > STEPS),
            fits: Fits::new(period),
            ended: 0,
            begun: 0,
            caught_up: Tick::ZERO,
            last: Tick::ZERO,
        }
    }

    /// From when on one more may be granted, as far as the clock was seen at `now`. The proof
    /// window has its own say: together they are exact once it opens.
    #[inline]
    pub(crate) fn opens_at(&mut self, window: &ProofWindow, now: Tick) -> Tick {
        let Some(over) = window.over() else {
            return Tick::ZERO;
        };
        // Fewer than the limit in two periods: no window can be full.
        if over < window.forgotten() {
            return Tick::ZERO;
        }
        self.catch_up(window, now);
        self.fits.at(over.saturating_add(1))
    }

    /// A request is proven, at `at`. Nearly always that is after all that was taken up; a service
    /// that tells its own times can prove out of order, and then all is taken up anew, which costs
    /// as much as there are proofs in two periods.
    #[inline]
    pub(crate) fn prove(&mut self, window: &ProofWindow, at: Tick) {
        if at < self.caught_up {
            *self = Self::new(window);
        }
    }

    /// Takes up the chords that end at a proof, or begin at one, up to `now`, in order.
    fn catch_up(&mut self, window: &ProofWindow, now: Tick) {
        self.caught_up = now;
        // What has ended a period ago cannot decide, nor what began two periods ago.
        self.ended = self.ended.max(window.back());
        self.begun = self.begun.max(window.forgotten());
        // The smallest `K` that can be asked for: when all that is unproven is withdrawn.
        let least = window.proven().saturating_add(1);
        let least = least.saturating_sub(window.limit()).max(1);
        self.fits.forget(least);
        let mut ends = self.proof(window, self.ended);
        let mut begins = self.proof(window, self.begun).plus(self.period);
        loop {
            let phi = ends.min(begins);
            if phi > now {
                break;
            }
            // Of several that end together the first is the strictest.
            if phi > self.last {
                self.last = phi;
                self.fits.put_off(Chord {
                    phi,
                    before: self.begun,
                    until: self.ended,
                });
            }
            // Every chord that ends at a proof begins after that proof.
            if begins <= ends {
                self.begun = self.begun.saturating_add(1);
                begins = self.proof(window, self.begun).plus(self.period);
            } else {
                self.ended = self.ended.saturating_add(1);
                ends = self.proof(window, self.ended);
            }
        }
    }

    /// A proof's time, rounded; [`Tick::NEVER`] if it is still to come.
    #[inline]
    fn proof(&self, window: &ProofWindow, number: u64) -> Tick {
        match (window.proof(number), self.grain) {
            (None, _) => Tick::NEVER,
            (Some(at), None) => at,
            (Some(at), Some(grain)) => at.round_up(grain.get()),
        }
    }
}

/// Costs a five-hundredth of the throughput, and only of quotas that allow more at once.
const STEPS: u64 = 256;

#[cfg(test)]
mod tests;
