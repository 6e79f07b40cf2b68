//! Recent response times, which show whether a call can still be answered.

use std::time::Duration;

use crate::clock::Tick;

/// Last [`SPAN`] response times.
///
/// They are forgotten after [`MEMORY`] without a response, because by then the service may have
/// become quicker, and only a request that is sent can show it.
#[derive(Debug)]
pub(super) struct ResponseTimes {
    /// In nanoseconds; the oldest is overwritten.
    recent: Vec<u64>,
    next: usize,
    sum: u64,
    last: Tick,
    /// Percentile at the last look, and the responses since then.
    percentile: (u64, usize),
}

// === impl ResponseTimes ===

impl ResponseTimes {
    pub(super) fn new() -> Self {
        Self {
            recent: Vec::with_capacity(SPAN),
            next: 0,
            sum: 0,
            last: Tick::ZERO,
            percentile: (0, STALE),
        }
    }

    #[inline]
    pub(super) fn learn(&mut self, now: Tick, granted: Tick) {
        // No sum of this many overflows.
        let took = now.since(granted).min(LONGEST);
        if now.since(self.last) > MEMORY {
            *self = Self::new();
        }
        self.last = now;
        match self.recent.get_mut(self.next) {
            Some(oldest) => self.sum -= std::mem::replace(oldest, took),
            None => self.recent.push(took),
        }
        self.sum += took;
        self.next = (self.next + 1) % SPAN;
        self.percentile.1 += 1;
    }

    /// Returns the mean, if it is known at `now`.
    pub(super) fn mean(&self, now: Tick) -> Option<u64> {
        let count = u64::try_from(self.recent.len()).unwrap_or(u64::MAX);
        let is_known = now.since(self.last) <= MEMORY;
        self.sum.checked_div(count).filter(|_| is_known)
    }

    /// Returns the usual time, if it is known at `now`: 95 % of the responses came [well](TICKS)
    /// within it.
    pub(super) fn usual(&mut self, now: Tick) -> Option<Duration> {
        if self.recent.is_empty() || now.since(self.last) > MEMORY {
            return None;
        }
        if self.percentile.1 >= STALE {
            let mut sorted = self.recent.clone();
            // Rounded down, so it is less than the length.
            let nth = sorted.len() * 95 / 100;
            let (_, percentile, _) = sorted.select_nth_unstable(nth);
            self.percentile = (*percentile, 0);
        }
        Some(Duration::from_nanos(self.percentile.0) + TICKS)
    }
}

/// Two to three seconds at the full rate: enough for a percentile, and soon new.
const SPAN: usize = 128;

/// How often the percentile is computed anew, in responses: a sort of [`SPAN`] numbers costs about
/// a microsecond, too much for each waiting call.
const STALE: usize = 8;

/// Timers tick in milliseconds. Without this, a call that is sent at the last moment meets its
/// deadline in the same tick as its response.
const TICKS: Duration = Duration::from_millis(2);

/// Ten seconds.
const MEMORY: u64 = 10_000_000_000;

/// An hour.
const LONGEST: u64 = 3_600_000_000_000;

#[cfg(test)]
mod tests;
