//! Safety against sliding-window counters, which also count a part of the previous window:
//! `previous * (1 - x) + current`, where `x` is the part of the current window that has passed.
//!
//! Such a counter holds the numbers of two windows. The current one begins at a time `phi` that the
//! limiter does not know. Place each proven request at its proof, the latest instant at which it
//! can have been counted, and each unproven one at now. One more may be sent if the sum fits for
//! *every* `phi`. Moving a count later never lowers such a sum, so the server's own sum also fits.
//!
//! Let `N(t)` be the number of proofs before `t`, `P` the period and `G` the number of requests
//! granted so far. Let `K = G + 1 - limit`, `a = N(phi - P)` and `b = N(phi)`. Draw a straight
//! line, the *chord*, from `a` at `phi - P` to `b` at `phi`. The sum for one `phi` fits as soon as
//! the chord at `now - P` is not below `K`, that is, from `phi + P * (K - a) / (b - a)` on.
//!
//! Between two proofs the sum only rises with `phi`, so only chords that begin or end at a proof
//! matter. Of these, only chords with `a < K <= b` matter: they end within a period after proof
//! `K`, or begin within a period before it.
//!
//! A chord does not depend on `K`, so it is computed once and kept for the period in which it can
//! matter.

use std::collections::VecDeque;

use super::window::Window;
use crate::clock::Tick;

/// Sliding-window counter at every alignment of its windows.
#[derive(Debug)]
pub(super) struct Counter {
    /// Chords that end within the last period, in order of their ends.
    chords: VecDeque<Chord>,
    /// Number of the first run (proofs at one time) at which no chord has ended yet.
    ended: u64,
    /// Number of the first run at which no chord has begun.
    begun: u64,
    /// Number of chords so far.
    count: u64,
    /// Result for the last number. Later chords can only delay it.
    latest: Latest,
}

/// Straight line between the counts at the beginnings of two windows. The later window begins at
/// `phi`.
#[derive(Debug, Clone, Copy)]
struct Chord {
    phi: Tick,
    /// Proofs before the earlier window.
    before: u64,
    /// Proofs before `phi`.
    until: u64,
    /// Nanoseconds from one number to the next, rounded up.
    step: u64,
}

/// Time from which a number fits the first `count` chords.
#[derive(Debug, Clone, Copy)]
struct Latest {
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
            latest: Latest {
                number: 0,
                count: 0,
                opens: Tick::ZERO,
            },
        }
    }

    /// Returns the first time at which one more may be granted, as known at `now`. It is exact once
    /// the proof window is open, which is checked first.
    #[inline]
    pub(super) fn opens_at(&mut self, window: &Window, now: Tick) -> Tick {
        match window.over() {
            Some(over) if over >= window.forgotten() => {
                self.update_chords(window, now);
                self.opens_for(over + 1)
            }
            // Two periods have fewer grants than the limit, so no window can be full.
            Some(_) | None => Tick::ZERO,
        }
    }

    fn opens_for(&mut self, number: u64) -> Tick {
        let (known, opens) = if self.latest.number == number {
            let since = usize::try_from(self.count - self.latest.count).unwrap_or(usize::MAX);
            (self.chords.len().saturating_sub(since), self.latest.opens)
        } else {
            (0, Tick::ZERO)
        };
        // Chords that end before the proof of that number, or begin after it, do not matter. They
        // are few and lie at both ends, so a search would cost more.
        let below = |chord: &&Chord| chord.until < number;
        let after = |chord: &&Chord| chord.before >= number;
        let begin = known + self.chords.range(known..).take_while(below).count();
        let later = self.chords.range(begin..).rev().take_while(after).count();
        let chords = self.chords.range(begin..self.chords.len() - later);
        let opens = chords
            .map(|chord| chord.opens_at(number))
            .fold(opens, Tick::max);
        self.latest = Latest {
            number,
            count: self.count,
            opens,
        };
        opens
    }

    /// Adds the chords that end or begin at a proof up to `now`, and drops the ones that no longer
    /// matter.
    fn update_chords(&mut self, window: &Window, now: Tick) {
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

/// Returns the largest sum of any alignment at `now`, without a new request. Between two jumps the
/// sum rises with the start of the windows. The jumps are right after a proof, and a period after
/// one.
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
    /// Returns the time from which a number between its ends lies below the chord.
    #[inline]
    const fn opens_at(&self, number: u64) -> Tick {
        self.phi.plus(self.step * (number - self.before))
    }
}

#[cfg(test)]
mod tests;
