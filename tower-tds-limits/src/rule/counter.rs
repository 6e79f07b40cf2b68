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

use crate::{clock::Tick, rule::window::ProofWindow};

/// The sliding-window counter, over every alignment of its windows.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    /// From when on each `K` fits, by the chords so far: for all that can still be asked for.
    fits: Vec<Tick>,
    /// The `K` of the first of them.
    first: u64,
    /// Proofs at which a chord has ended.
    ended: u64,
    /// Proofs at which a chord has begun.
    begun: u64,
    /// Up to when chords were taken up.
    caught_up: Tick,
    /// The end of the last of them.
    last: Tick,
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
        let place = over.saturating_add(1).checked_sub(self.first);
        let place = place.and_then(|place| usize::try_from(place).ok());
        let fits = place.and_then(|place| self.fits.get(place));
        fits.copied().unwrap_or_default()
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
        // What has ended a period ago cannot decide, nor what began two periods ago.
        self.ended = self.ended.max(window.back());
        self.begun = self.begun.max(window.forgotten());
        // The smallest `K` that can be asked for: when all that is unproven is withdrawn.
        let least = window.proven().saturating_add(1);
        let least = least.saturating_sub(window.limit()).max(1);
        self.forget(least);
        loop {
            let ends = coarse(window, self.ended);
            let begins = coarse(window, self.begun).map(|at| at.plus(window.hold()));
            let (phi, begins) = match (ends, begins) {
                (Some(ends), Some(begins)) => (ends.min(begins), begins <= ends),
                (None, Some(begins)) => (begins, true),
                // Every chord that ends at a proof begins after that proof.
                (_, None) => break,
            };
            if phi > now {
                break;
            }
            // Of several that end together the first is the strictest.
            if phi > self.last {
                self.last = phi;
                let chord = Chord {
                    phi,
                    before: self.begun,
                    until: self.ended,
                };
                self.take_up(chord, window.hold());
            }
            if begins {
                self.begun = self.begun.saturating_add(1);
            } else {
                self.ended = self.ended.saturating_add(1);
            }
        }
    }

    /// Forgets what is below `least`, in large steps: each costs a move of the rest.
    fn forget(&mut self, least: u64) {
        let below = least.saturating_sub(self.first);
        let below = usize::try_from(below).unwrap_or(usize::MAX);
        if below >= self.fits.len() {
            self.fits.clear();
            self.first = least;
        } else if below > self.fits.len() / 2 {
            self.fits.drain(..below);
            self.first = least;
        }
    }

    /// Puts off every `K` that the chord puts off.
    fn take_up(&mut self, chord: Chord, period: u64) {
        let Chord { phi, before, until } = chord;
        let step = period.div_ceil(until.saturating_sub(before).max(1));
        // The chord decides over each `K` beyond `before`, and up to `until`.
        let least = before.saturating_add(1).max(self.first);
        let place = |k: u64| usize::try_from(k.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let (least_place, places) = (place(least), place(until.saturating_add(1)));
        if self.fits.len() < places {
            self.fits.resize(places, Tick::ZERO);
        }
        let mut fits = phi.plus(step.saturating_mul(least.saturating_sub(before)));
        for kept in self.fits.get_mut(least_place..places).unwrap_or_default() {
            *kept = fits.max(*kept);
            fits = fits.plus(step);
        }
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

/// Costs a five-hundredth of the throughput, and only of quotas that allow more at once.
const STEPS: u64 = 256;

#[cfg(test)]
mod tests;
