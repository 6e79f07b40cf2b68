//! Safety against counters that weigh the window before: `previous * (1 - x) + current`.
//!
//! Such a counter keeps two numbers for windows that begin at an unknown time `phi`. Each proof is
//! put at the latest instant at which its request can have been counted, and each unproven request
//! at now. One more may be sent if the sum fits for *every* `phi`. Moving a count later never
//! lowers such a sum, so the server's own sum also fits.
//!
//! Let `N(t)` be the proofs before `t`, `P` the period and `G` the requests granted so far. Let
//! `K = G + 1 - limit`, `a = N(phi - P)` and `b = N(phi)`. The sum for one `phi` fits as soon as `K`
//! lies below the chord that joins `a` and `b`, read at `now - P`: from
//! `phi + P * (K - a) / (b - a)` on.
//!
//! Between two proofs the sum only rises with `phi`, so only chords that begin or end at a proof
//! matter. Of these only the chords with `a < K <= b` matter: those that end within a period after
//! proof `K`, and those that begin within one before it.
//!
//! A chord does not depend on `K`, and is kept for the period in which it can decide.

use std::collections::VecDeque;

use super::window::Window;
use crate::clock::Tick;

/// The sliding-window counter, over every alignment of its windows.
#[derive(Debug)]
pub(super) struct Counter {
    /// The chords that end within the last period, in order of their ends.
    chords: VecDeque<Chord>,
    /// The number of the first run at which no chord has ended.
    ended: u64,
    /// The number of the first run at which no chord has begun.
    begun: u64,
    /// The number of chords so far.
    count: u64,
    /// The last result, which later chords can only delay.
    last: Said,
}

/// The line that joins the counts of two windows, the later of which begins at `phi`.
#[derive(Debug, Clone, Copy)]
struct Chord {
    phi: Tick,
    /// Proofs before the window before.
    before: u64,
    /// Proofs before `phi`.
    until: u64,
    /// Nanoseconds from one number to the next, rounded up.
    step: u64,
}

/// The time from which a number fits the first `count` chords.
#[derive(Debug, Clone, Copy)]
struct Said {
    number: u64,
    count: u64,
    opens: Tick,
}

// === impl Counter ===

impl Counter {
    pub(super) const fn new() -> Self {
        Self {
            chords: VecDeque::new(),
            ended: 0,
            begun: 0,
            count: 0,
            last: Said {
                number: 0,
                count: 0,
                opens: Tick::ZERO,
            },
        }
    }

    /// The first time at which one more may be granted, as known at `now`. The proof window is
    /// checked first: the two together are exact once it opens.
    #[inline]
    pub(super) fn opens_at(&mut self, window: &Window, now: Tick) -> Tick {
        match window.over() {
            // Fewer than the limit in two periods: no window can be full.
            Some(over) if over >= window.forgotten() => {
                self.take_up(window, now);
                self.say(over + 1)
            }
            Some(_) | None => Tick::ZERO,
        }
    }

    fn say(&mut self, number: u64) -> Tick {
        let (heard, opens) = if self.last.number == number {
            let since = usize::try_from(self.count - self.last.count).unwrap_or(usize::MAX);
            (self.chords.len().saturating_sub(since), self.last.opens)
        } else {
            (0, Tick::ZERO)
        };
        // Chords that end before the proof of that number, or begin after it, do not matter. There
        // are few at either end, and a search would cost more.
        let below = |chord: &&Chord| chord.until < number;
        let after = |chord: &&Chord| chord.before >= number;
        let begin = heard + self.chords.range(heard..).take_while(below).count();
        let later = self.chords.range(begin..).rev().take_while(after).count();
        let chords = self.chords.range(begin..self.chords.len() - later);
        let opens = chords
            .map(|chord| chord.opens_at(number))
            .fold(opens, Tick::max);
        self.last = Said {
            number,
            count: self.count,
            opens,
        };
        opens
    }

    /// Adds the chords that end or begin at a proof, up to `now`.
    fn take_up(&mut self, window: &Window, now: Tick) {
        let period = window.hold();
        // Forgotten chords began two periods ago.
        self.ended = self.ended.max(window.first());
        self.begun = self.begun.max(window.first());
        loop {
            let ends = window.run(self.ended);
            let begins = window.run(self.begun).plus(period);
            let phi = ends.min(begins);
            if phi > now {
                break;
            }
            let (before, until) = (window.before(self.begun), window.before(self.ended));
            if until > before && phi.plus(period) > now {
                self.count += 1;
                self.chords.push_back(Chord {
                    phi,
                    before,
                    until,
                    step: period.div_ceil(until - before),
                });
            }
            self.ended += u64::from(ends == phi);
            self.begun += u64::from(begins == phi);
        }
        while let Some(chord) = self.chords.front()
            && chord.phi.plus(period) <= now
        {
            self.chords.pop_front();
        }
    }
}

/// The largest sum of any alignment at `now`, without a new request. It rises with the start of the
/// windows up to the next proof, and up to a moment before a period after a proof.
pub(super) fn largest_sum(window: &Window, now: Tick) -> u64 {
    let period = window.hold();
    let sum = |begins: Tick| {
        let before = window.before_time(begins);
        let weighed = before - window.before_time(begins.minus(period));
        let left = period - now.since(begins).min(period);
        let weighed = u128::from(weighed * left).div_ceil(period.into());
        window.granted() - before + u64::try_from(weighed).unwrap_or(u64::MAX)
    };
    let proofs = (window.first()..).map(|number| window.run(number));
    let proofs = proofs.take_while(|at| *at < Tick::NEVER);
    let begins = proofs.flat_map(|at| [at, at.plus(period - 1)]).chain([now]);
    let begins = begins.filter(|at| *at <= now && at.plus(period) > now);
    begins.map(sum).max().unwrap_or_default()
}

// === impl Chord ===

impl Chord {
    /// The time from which a number between its ends lies below the chord.
    #[inline]
    const fn opens_at(&self, number: u64) -> Tick {
        self.phi.plus(self.step * (number - self.before))
    }
}

#[cfg(test)]
mod tests;
