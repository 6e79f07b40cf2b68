//! Recent response times, which show whether a call can still be answered.

use std::time::Duration;

use crate::clock::Tick;

/// Last [`SPAN`] response times.
///
/// After [`MEMORY`] without a response they are forgotten, because the service may have become
/// quicker by then, which only a new request can show.
#[derive(Debug)]
pub(super) struct ResponseTimes {
    /// Response times in nanoseconds. A new one overwrites the oldest.
    recent: Vec<u64>,
    next: usize,
    sum: u64,
    last: Tick,
    /// Percentile when it was last computed, and the number of responses since then.
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
        // So bounded, no sum of [`SPAN`] times overflows.
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
            // Rounded down, so the index is below the length.
            let nth = sorted.len() * 95 / 100;
            let (_, percentile, _) = sorted.select_nth_unstable(nth);
            self.percentile = (*percentile, 0);
        }
        Some(Duration::from_nanos(self.percentile.0) + TICKS)
    }
}

/// Two to three seconds at the full rate, which is enough for a percentile and soon renewed.
const SPAN: usize = 128;

/// Number of responses after which the percentile is computed anew. A sort of [`SPAN`] numbers
/// takes about a microsecond, which is too much for each waiting call.
const STALE: usize = 8;

/// Margin for timers, which tick in milliseconds. Without it, a call that is sent at the last
/// moment could reach its deadline in the same tick as its response.
const TICKS: Duration = Duration::from_millis(2);

/// Ten seconds, in nanoseconds.
const MEMORY: u64 = 10_000_000_000;

/// An hour, in nanoseconds.
const LONGEST: u64 = 3_600_000_000_000;

#[cfg(test)]
mod tests;
