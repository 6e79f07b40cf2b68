//! Backoff: jittered waits between attempts, if the service requests none.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::time::Duration;

use fastrand::Rng;

/// Exponential backoff with full jitter. It spreads simultaneous retries best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backoff {
    base: Duration,
    cap: Duration,
}

// === impl Backoff ===

impl Backoff {
    /// Waits up to `base` before the first retry, and never longer than `cap`.
    pub(super) const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap }
    }

    /// The longest wait before retry `n`, counted from 0.
    pub(super) fn bound(&self, n: u32) -> Duration {
        let factor = 1u32.checked_shl(n).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// The wait before retry `n`.
    pub(super) fn draw(&self, n: u32, rng: &mut Rng) -> Duration {
        up_to(self.bound(n), rng)
    }
}

/// 100 ms, about the length of a call, and 10 s, about the longest acceptable one.
impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(10))
    }
}

/// An even draw from nothing to `bound`.
pub(super) fn up_to(bound: Duration, rng: &mut Rng) -> Duration {
    let bound = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(rng.u64(0..=bound))
}

#[cfg(test)]
mod tests;
