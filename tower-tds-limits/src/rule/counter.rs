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
//! unproven appears nowhere: the answer for one `K` is one instant.
//!
//! A chord is a straight line over `K`, so one that another exceeds at both ends of what is left
//! of it never decides again. Of a hundred chords for fifty a second, an even flow leaves a few
//! and a rough one about forty; a grant looks at each that is left.

use std::collections::VecDeque;

use crate::{clock::Tick, rule::window::ProofWindow};

/// The sliding-window counter, over every alignment of its windows.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    /// Chords that can still decide, by the ends of their windows.
    chords: VecDeque<Chord>,
    /// Proofs at which a chord has ended.
    ended: u64,
    /// Proofs at which a chord has begun.
    begun: u64,
    /// Up to when chords were taken up.
    caught_up: Tick,
}

/// The window before one that begins at `phi`.
#[derive(Debug, Clone, Copy)]
struct Chord {
    phi: Tick,
    /// Proofs before the chord.
    before: u64,
    /// Proofs before its end.
    until: u64,
}

// === impl Counter ===

impl Counter {
    /// From when on one more may be granted, as far as the clock was seen at `now`. The proof
    /// window has its own say: together they are exact once it opens.
    pub(crate) fn opens_at(&mut self, window: &ProofWindow, now: Tick) -> Tick {
        let Some(over) = window.over() else {
            return Tick::ZERO;
        };
        // Fewer than the limit in two periods: no window can be full.
        if over < window.forgotten() {
            return Tick::ZERO;
        }
        self.catch_up(window, now);
        let k = over.saturating_add(1);
        let period = window.hold();
        self.chords
            .iter()
            .filter_map(|chord| chord.fits(k, period))
            .max()
            .unwrap_or_default()
    }

    /// A request is proven, at `at`. Nearly always that is after all that was taken up; a service
    /// that tells its own times can prove out of order, and then all is taken up anew.
    pub(crate) fn prove(&mut self, at: Tick) {
        if at < self.caught_up {
            *self = Self::default();
        }
    }

    /// Takes up the chords that end at a proof, or begin at one, up to `now`, in order.
    fn catch_up(&mut self, window: &ProofWindow, now: Tick) {
        self.caught_up = now;
        let period = window.hold();
        // What has ended a period ago cannot decide, nor what began two periods ago.
        self.ended = self.ended.max(window.back());
        self.begun = self.begun.max(window.forgotten());
        loop {
            let ends = coarse(window, self.ended);
            let begins = coarse(window, self.begun).map(|at| at.plus(period));
            let (phi, begins) = match (ends, begins) {
                (Some(ends), Some(begins)) => (ends.min(begins), begins <= ends),
                (None, Some(begins)) => (begins, true),
                // Every chord that ends at a proof begins after that proof.
                (_, None) => break,
            };
            if phi > now {
                break;
            }
            self.push(
                Chord {
                    phi,
                    before: self.begun,
                    until: self.ended,
                },
                window,
            );
            if begins {
                self.begun = self.begun.saturating_add(1);
            } else {
                self.ended = self.ended.saturating_add(1);
            }
        }
        while self
            .chords
            .front()
            .is_some_and(|chord| chord.phi.plus(period) <= now)
        {
            self.chords.pop_front();
        }
    }

    fn push(&mut self, chord: Chord, window: &ProofWindow) {
        let Some(last) = self.chords.back() else {
            self.chords.push_back(chord);
            return;
        };
        // Of several that end together the first is the strictest.
        if last.phi == chord.phi {
            return;
        }
        // The smallest `K` that can be asked for from now on: when all unproven are withdrawn.
        let least = window
            .proven()
            .saturating_add(1)
            .saturating_sub(window.limit());
        while let Some(last) = self.chords.back()
            && chord.exceeds(last, least, window.hold())
        {
            self.chords.pop_back();
        }
        self.chords.push_back(chord);
    }
}

/// A proof's time; in windows of thousands rounded up, so that there are never more than a few
/// hundred chords. A later proof is a safe one.
fn coarse(window: &ProofWindow, number: u64) -> Option<Tick> {
    let at = window.proof(number)?;
    Some(if window.limit() > STEPS {
        at.round_up(window.hold().checked_div(STEPS).unwrap_or_default())
    } else {
        at
    })
}

// === impl Chord ===

impl Chord {
    /// From when on the `k`-th fits; `None` if this chord does not decide over it.
    fn fits(&self, k: u64, period: u64) -> Option<Tick> {
        (self.before < k && k <= self.until).then(|| self.at(k, period))
    }

    /// The line itself, for `k` from `before` to `until`, rounded up.
    fn at(&self, k: u64, period: u64) -> Tick {
        let part = k.saturating_sub(self.before);
        let whole = self.until.saturating_sub(self.before).max(1);
        let wait = match period.checked_mul(part) {
            Some(product) => product.div_ceil(whole),
            // Quotas of weeks.
            None => u64::try_from(
                (u128::from(period).saturating_mul(u128::from(part))).div_ceil(u128::from(whole)),
            )
            .unwrap_or(u64::MAX),
        };
        self.phi.plus(wait)
    }

    /// Whether an older chord decides nothing any more beside this one, for any `k` from `least`.
    fn exceeds(&self, older: &Self, least: u64, period: u64) -> bool {
        // Up to `before` this one does not decide; the older one must be past there.
        let past = self.before;
        let least = least.max(older.before.saturating_add(1));
        if past >= least && older.at(past.min(older.until), period) > self.phi {
            return false;
        }
        let least = least.max(past.saturating_add(1));
        if least > older.until {
            return true;
        }
        self.at(least, period) >= older.at(least, period)
            && self.at(older.until, period) >= older.at(older.until, period)
    }
}

/// Costs a five-hundredth of the throughput, and only of quotas that allow more at once.
const STEPS: u64 = 256;

#[cfg(test)]
mod tests;
