//! Evenly spaced grants after a burst. It proves nothing, and keeps requests from bunching.

use std::num::NonZeroU32;

use crate::{
    Quota,
    clock::{Tick, nanos},
};

/// Grants at absolute times, so that a timer's lateness does not add up.
#[derive(Debug)]
pub(crate) struct Pace {
    interval: u64,
    /// How far ahead of the even schedule a grant may be.
    ahead: u64,
    /// When the next grant is due on the even schedule.
    due: Tick,
}

// === impl Pace ===

impl Pace {
    pub(crate) fn new(quota: Quota, burst: NonZeroU32) -> Self {
        // The even spacing itself: the guard is for rules that prove something.
        let interval = nanos(quota.per() / quota.requests().get());
        Self {
            interval,
            ahead: interval.saturating_mul(u64::from(burst.get()) - 1),
            due: Tick::ZERO,
        }
    }

    /// From when on one more may be granted.
    #[inline]
    pub(crate) fn opens_at(&self) -> Tick {
        self.due.minus(self.ahead)
    }

    /// One more was granted at `now`.
    #[inline]
    pub(crate) fn grant(&mut self, now: Tick) {
        // A timer that was a little late is made good; a pause of the process is not, or its
        // end would be a burst.
        let late = self.due.plus(CATCH_UP) >= now;
        self.due = if late { self.due } else { now }.plus(self.interval);
    }

    /// A request that was granted was never sent.
    pub(crate) fn withdraw(&mut self) {
        self.due = self.due.minus(self.interval);
    }
}

/// What a timer is late by: 1.1 ms as a rule, 2 to 2.6 ms one time in a hundred (the study's
/// measurement of tokio's timer on an idle machine).
const CATCH_UP: u64 = 2_000_000;

#[cfg(test)]
mod tests;
