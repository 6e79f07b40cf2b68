//! The proofs of one quota, and the two sums over them: the proof window, in which a request is live
//! from its grant until a whole interval after its proof, and the sliding-window counter, which also
//! counts a part of the window before: `previous * (1 - x) + current`, where `x` is the part of the
//! current window that has passed.
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

use crate::{
    clock::{Tick, nanos},
    limits::Quota,
};

/// At most `limit` requests are live at any grant. Each is live from its grant until `hold` after
/// the response has proved that the service counted it.
///
/// No interval can hold more: see theorem 1 of DESIGN.md.
///
/// Single requests are not tracked: the window holds only how many were granted, and when how many
/// were proven.
#[derive(Debug)]
pub(crate) struct Window {
    limit: u64,
    hold: u64,
    /// With large quotas, proofs are rounded up to multiples of this, so that there are a few
    /// hundred runs at most. Rounding up is safe, because a later proof only holds the permit
    /// longer.
    grain: u64,
    /// Requests granted so far and not withdrawn.
    granted: u64,
    /// Proofs in order of time, at least those of the last two holds.
    runs: Vec<Run>,
    /// Proofs that are too old for any sum.
    forgotten: u64,
}

/// Requests proven at one time.
#[derive(Debug, Clone, Copy)]
struct Run {
    at: Tick,
    /// Proofs so far, these included.
    until: u64,
}

// === impl Window ===

impl Window {
    pub(crate) fn new(quota: Quota) -> Self {
        let limit = u64::from(quota.requests().get());
        let hold = nanos(quota.hold());
        Self {
            limit,
            hold,
            // A hold is a millisecond at least.
            grain: if limit > STEPS { hold / STEPS } else { 1 },
            granted: 0,
            runs: Vec::new(),
            forgotten: 0,
        }
    }

    /// Changes the limit.
    pub(crate) fn limit_to(&mut self, quota: Quota) {
        self.limit = u64::from(quota.requests().get());
    }

    /// Returns the first time at which one more may be granted: [`Tick::NEVER`] while that depends on
    /// a future proof.
    #[inline]
    pub(crate) fn opens_at(&self) -> Tick {
        let opens = |number| self.at(self.index_of(number)).plus(self.hold);
        self.due().map_or(Tick::ZERO, opens)
    }

    /// Returns the first time at which one more fits a counter at every alignment, as known at `now`. It
    /// is exact once the proof window is open.
    pub(crate) fn counter_opens_at(&self, now: Tick) -> Tick {
        let Some(number) = self.due() else {
            // Two periods have fewer grants than the limit, so no window can be full.
            return Tick::ZERO;
        };
        let period = self.hold;
        let due = self.index_of(number);
        let due_at = self.at(due);
        // Indices of the first runs at which no chord has begun, and at which none has ended.
        let mut begun = self
            .runs
            .partition_point(|run| run.at.plus(period) <= due_at);
        let mut ended = due + 1;
        let (mut before, mut until) = (self.before(begun), self.before(ended));
        let mut opens = Tick::ZERO;
        while begun <= due {
            let (begins, ends) = (self.at(begun).plus(period), self.at(ended));
            let phi = begins.min(ends);
            if phi > now {
                break;
            }
            let step = period.div_ceil(until - before);
            opens = opens.max(phi.plus(step * (number - before)));
            if begins == phi {
                begun += 1;
                before = self.before(begun);
            }
            if ends == phi {
                ended += 1;
                until = self.before(ended);
            }
        }
        opens
    }

    /// Returns the largest sum of a counter of any alignment at `now`, without a new request. Between
    /// two jumps the sum rises with the start of the windows. The jumps are right after a proof, and a
    /// period after one.
    pub(crate) fn largest_sum(&self, now: Tick) -> u64 {
        let period = self.hold;
        let before = |at: Tick| self.before(self.runs.partition_point(|run| run.at < at));
        let sum = |begins: Tick| {
            let weighed = before(begins) - before(begins.minus(period));
            let left = period - now.since(begins).min(period);
            let weighed = u128::from(weighed * left).div_ceil(period.into());
            self.granted - before(begins) + u64::try_from(weighed).unwrap_or(u64::MAX)
        };
        let jumps = |run: &Run| [run.at, run.at.plus(period - 1)];
        let begins = self.runs.iter().flat_map(jumps).chain([now]);
        let begins = begins.filter(|at| *at <= now && at.plus(period) > now);
        begins.map(sum).max().unwrap_or_default()
    }

    #[inline]
    pub(crate) fn grant(&mut self) {
        self.granted += 1;
    }

    /// Records the proof that a request was counted no later than `at`. Proofs come in order.
    #[inline]
    pub(crate) fn prove(&mut self, at: Tick) {
        let (exact, at) = (at, at.round_up(self.grain));
        let until = self.before(self.runs.len()) + 1;
        match self.runs.last_mut() {
            Some(last) if last.at == at => last.until = until,
            Some(_) | None => {
                if self.runs.len() == self.runs.capacity() {
                    self.forget(exact);
                }
                self.runs.push(Run { at, until });
            }
        }
    }

    /// Forgets runs that are two holds old, before the buffer grows.
    #[cold]
    fn forget(&mut self, now: Tick) {
        let old = |run: &Run| run.at.plus(self.hold * 2) <= now;
        let old = self.runs.partition_point(old);
        self.forgotten = self.before(old);
        self.runs.drain(..old);
    }

    /// Takes back the grant of a request that was never sent.
    pub(crate) fn withdraw(&mut self) {
        self.granted = self.granted.saturating_sub(1);
    }

    /// Permits that are live at `now`.
    pub(crate) fn live(&self, now: Tick) -> u64 {
        let back = |run: &Run| run.at.plus(self.hold) <= now;
        let back = self.before(self.runs.partition_point(back));
        self.granted.saturating_sub(back)
    }

    /// Requests granted and not proven.
    pub(crate) fn unproven(&self) -> u64 {
        self.granted.saturating_sub(self.before(self.runs.len()))
    }

    /// Returns the number, from one, of the proof that must be a hold old before the next grant, if there
    /// is one that is not forgotten.
    #[inline]
    fn due(&self) -> Option<u64> {
        let over = self.granted.checked_sub(self.limit);
        over.filter(|over| *over >= self.forgotten)
            .map(|over| over + 1)
    }

    /// Index of the run that has the proof of this number.
    #[inline]
    fn index_of(&self, number: u64) -> usize {
        self.runs.partition_point(|run| run.until < number)
    }

    #[inline]
    fn at(&self, index: usize) -> Tick {
        self.runs.get(index).map_or(Tick::NEVER, |run| run.at)
    }

    /// Proofs before the run at this index.
    #[inline]
    fn before(&self, index: usize) -> u64 {
        let before = index.checked_sub(1).and_then(|index| self.runs.get(index));
        before.map_or(self.forgotten, |run| run.until)
    }
}

/// Number of steps in an interval. Rounding to them costs a two-hundredth of the throughput, for
/// larger quotas only.
const STEPS: u64 = 128;

#[cfg(test)]
mod tests;
