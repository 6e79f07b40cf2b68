//! Usual times of calls, which show whether one can still be answered.

use std::time::Duration;

use crate::{clock::nanos, wait::CallDeadline};

/// Usual times by the octave of the deadlines, because calls with longer ones are usually slower.
#[derive(Debug, Default)]
pub(super) struct UsualTimes([Usual; OCTAVES]);

/// Mean and deviation of recent times, as in TCP's retransmission timer (RFC 6298). Both are zero before the
/// first.
#[derive(Debug, Clone, Copy, Default)]
struct Usual {
    mean: u64,
    deviation: u64,
}

// === impl UsualTimes ===

impl UsualTimes {
    #[inline]
    pub(super) fn learn(&mut self, octave: u8, took: u64) {
        if let Some(usual) = self.0.get_mut(usize::from(octave)) {
            usual.learn(took.min(LONGEST));
        }
    }

    /// Returns the usual time: only a [margin](TICKS) before the first call.
    pub(super) fn usual(&self, octave: u8) -> Duration {
        let usual = self.0.get(usize::from(octave)).copied();
        let Usual { mean, deviation } = usual.unwrap_or_default();
        Duration::from_nanos(mean + 4 * deviation) + TICKS
    }
}

/// Returns the octave of a deadline. A call without one is ordered as if it had a minute.
#[inline]
pub(super) fn octave(deadline: Option<&CallDeadline>) -> u8 {
    let whole = deadline.map_or(MINUTE, |deadline| nanos(deadline.whole));
    let octave = (whole / MILLISECOND).checked_ilog2().unwrap_or_default();
    u8::try_from(octave).map_or(LAST, |octave| octave.min(LAST))
}

// === impl Usual ===

impl Usual {
    #[inline]
    fn learn(&mut self, took: u64) {
        if self.mean == 0 {
            // A deviation of a half, as in TCP, would reject whole deadlines after one response.
            (self.mean, self.deviation) = (took, took / 24);
        }
        let error = self.mean.abs_diff(took);
        self.deviation = self.deviation - self.deviation / 4 + error / 4;
        self.mean = self.mean - self.mean / 8 + took / 8;
    }
}

/// From a millisecond to eight minutes.
const OCTAVES: usize = 20;

const LAST: u8 = 19;

/// Margin for timers, which tick in milliseconds. Without it, a call that is sent at the last
/// moment could reach its deadline in the same tick as its response.
const TICKS: Duration = Duration::from_millis(2);

const MILLISECOND: u64 = 1_000_000;

const MINUTE: u64 = 60_000 * MILLISECOND;

/// An hour, with which no sum overflows.
const LONGEST: u64 = 3_600_000 * MILLISECOND;

#[cfg(test)]
mod tests;
