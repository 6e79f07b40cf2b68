//! Proof window: lets at most the quota be live, where a request is live from its grant until a
//! whole interval after its proof.

use std::collections::VecDeque;

use crate::{
    clock::{Tick, nanos},
    limits::Quota,
};

/// At most `limit` requests are live at any grant. Each is live from its grant until `hold` after
/// the response has proved that the service counted it.
///
/// No interval can hold more: see theorem 1 of DESIGN.md.
///
/// Single requests are not tracked: the window holds only how many were granted, how many were
/// proven, and how many permits came back.
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
    /// Requests proven so far.
    proven: u64,
    /// Proofs in order of time, at least those of the last two holds.
    runs: VecDeque<Run>,
    /// Number of forgotten runs, which is the number of the first of `runs`.
    first: u64,
    /// Proofs in the forgotten runs.
    forgotten: u64,
    /// Number of permits that came back, which are the proofs that were a hold old at the last
    /// event.
    back: u64,
    /// Number of the first run whose permits have not come back.
    next: u64,
    /// When the next permits come back.
    next_back: Tick,
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
            grain: if limit > STEPS {
                (hold / STEPS).max(1)
            } else {
                1
            },
            granted: 0,
            proven: 0,
            runs: VecDeque::new(),
            first: 0,
            forgotten: 0,
            back: 0,
            next: 0,
            next_back: Tick::NEVER,
        }
    }

    /// Changes the limit.
    pub(crate) fn limit_to(&mut self, quota: Quota) {
        self.limit = u64::from(quota.requests().get());
    }

    /// Advances the window to `now`.
    #[inline]
    pub(crate) fn advance(&mut self, now: Tick) {
        if self.next_back <= now {
            self.bring_back(now);
        }
    }

    fn bring_back(&mut self, now: Tick) {
        while let Some(run) = self.runs.get(self.place_of(self.next)) {
            let at = run.at.plus(self.hold);
            if at > now {
                self.next_back = at;
                return;
            }
            self.back = run.until;
            self.next += 1;
        }
        self.next_back = Tick::NEVER;
    }

    /// Returns the first time at which one more may be granted: [`Tick::NEVER`] while that depends on
    /// a future proof.
    #[inline]
    pub(crate) fn opens_at(&self) -> Tick {
        let Some(over) = self.over().filter(|over| *over >= self.back) else {
            return Tick::ZERO;
        };
        // The first run that has the proof of this number.
        let place = self.runs.partition_point(|run| run.until <= over);
        let run = self.runs.get(place);
        run.map_or(Tick::NEVER, |run| run.at.plus(self.hold))
    }

    /// Returns the number granted beyond the first `limit`. It is also the number, from zero, of the
    /// proof that must be a hold old before the next grant.
    #[inline]
    pub(crate) fn over(&self) -> Option<u64> {
        self.granted.checked_sub(self.limit)
    }

    #[inline]
    pub(crate) fn grant(&mut self) {
        self.granted += 1;
    }

    /// Records the proof that a request was counted no later than `at`. Proofs come in order.
    #[inline]
    pub(crate) fn prove(&mut self, at: Tick) {
        let exact = at;
        let at = if self.grain == 1 {
            at
        } else {
            at.round_up(self.grain)
        };
        self.proven += 1;
        let until = self.proven;
        match self.runs.back_mut() {
            Some(last) if last.at == at => last.until = until,
            Some(_) | None => {
                if self.runs.len() == self.runs.capacity() {
                    self.forget(exact);
                }
                self.runs.push_back(Run { at, until });
            }
        }
        self.next_back = self.next_back.min(at.plus(self.hold));
    }

    /// Forgets runs that are two holds old, before the buffer grows.
    #[cold]
    fn forget(&mut self, now: Tick) {
        let old = |run: &Run| run.until <= self.back && run.at.plus(self.hold * 2) <= now;
        let old = self.runs.partition_point(old);
        self.forgotten = self.before_place(old);
        self.first += u64::try_from(old).unwrap_or(u64::MAX);
        self.runs.drain(..old);
    }

    /// Takes back the grant of a request that was never sent.
    pub(crate) fn withdraw(&mut self) {
        self.granted = self.granted.saturating_sub(1);
    }

    /// Permits that were live at the last event.
    #[inline]
    pub(crate) fn live(&self) -> u64 {
        self.granted.saturating_sub(self.back)
    }

    pub(crate) fn hold(&self) -> u64 {
        self.hold
    }

    /// Requests granted and not proven.
    pub(crate) fn unproven(&self) -> u64 {
        self.granted.saturating_sub(self.proven)
    }

    /// Proofs too old for any rule.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Returns the number of the first run that is not forgotten.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// When the run of this number was proven.
    #[inline]
    pub(super) fn run(&self, number: u64) -> Tick {
        let run = self.runs.get(self.place_of(number));
        run.map_or(Tick::NEVER, |run| run.at)
    }

    /// Proofs before the run of this number.
    #[inline]
    pub(super) fn before(&self, number: u64) -> u64 {
        self.before_place(self.place_of(number))
    }

    /// Proofs before a time, forgotten ones included.
    pub(super) fn before_time(&self, at: Tick) -> u64 {
        self.before_place(self.runs.partition_point(|run| run.at < at))
    }

    pub(super) fn granted(&self) -> u64 {
        self.granted
    }

    fn before_place(&self, place: usize) -> u64 {
        let before = place.checked_sub(1).and_then(|place| self.runs.get(place));
        before.map_or(self.forgotten, |run| run.until)
    }

    fn place_of(&self, number: u64) -> usize {
        usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX)
    }
}

/// Number of steps in an interval. Rounding to them costs a two-hundredth of the throughput, for
/// larger quotas only.
const STEPS: u64 = 128;

#[cfg(test)]
mod tests;
