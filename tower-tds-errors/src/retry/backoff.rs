//! How long to wait between attempts, if nobody says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;

/// Exponential backoff with jitter.
///
/// By full jitter, the default, the wait before retry `n`, counted from 0, is drawn evenly from
/// nothing to `base * 2^n`, and never above the cap. It spreads a crowd best, and with it the first
/// retries of many requests that failed together do not meet again. Prefer
/// [`decorrelated`](Self::decorrelated) where a retry at once would come too early.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_tds_errors::Backoff;
///
/// let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
/// assert_eq!(backoff.bound(0), Duration::from_millis(100));
/// assert_eq!(backoff.bound(3), Duration::from_millis(800));
/// assert_eq!(backoff.bound(u32::MAX), Duration::from_secs(10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    jitter: Jitter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Jitter {
    Full,
    Decorrelated,
}

/// Where sessions get their random numbers: one sequence each, never a shared one.
#[derive(Clone, Debug, Default)]
pub(super) enum Dice {
    #[default]
    Thread,
    /// Counts the sessions, so that each has its own sequence and a test can repeat all of them.
    Seeded(Arc<AtomicU64>),
}

// === impl Backoff ===

impl Backoff {
    /// Waits up to `base` before the first retry, and never longer than `cap`.
    #[must_use]
    pub const fn new(base: Duration, cap: Duration) -> Self {
        let jitter = Jitter::Full;
        Self { base, cap, jitter }
    }

    /// Draws each wait evenly from `base` to three times the wait before, which is `base` at first,
    /// and never above `cap`.
    #[must_use]
    pub const fn decorrelated(base: Duration, cap: Duration) -> Self {
        let jitter = Jitter::Decorrelated;
        Self { base, cap, jitter }
    }

    /// The longest wait before retry `n`, counted from 0.
    #[must_use]
    pub fn bound(&self, n: u32) -> Duration {
        let factor = match self.jitter {
            Jitter::Full => 1u32.checked_shl(n).unwrap_or(u32::MAX),
            Jitter::Decorrelated => 3u32.saturating_pow(n.saturating_add(1)),
        };
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// The wait before retry `n`, after one of `before`.
    pub(super) fn draw(&self, n: u32, before: Duration, rng: &mut Rng) -> Duration {
        match self.jitter {
            Jitter::Full => up_to(self.bound(n), rng),
            Jitter::Decorrelated => {
                // The cap bounds the range and not the draw, so that no crowd waits just as long.
                let most = before.max(self.base).saturating_mul(3).min(self.cap);
                let least = self.base.min(most);
                least.saturating_add(up_to(most.saturating_sub(least), rng))
            }
        }
    }
}

/// 100 ms, about the time of one call, and 10 s, about the patience of one.
impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(10))
    }
}

// === impl Dice ===

impl Dice {
    pub(super) fn seeded(seed: u64) -> Self {
        Self::Seeded(Arc::new(AtomicU64::new(seed)))
    }

    pub(super) fn session(&self) -> Rng {
        match self {
            Self::Thread => Rng::new(),
            Self::Seeded(next) => {
                // Relaxed: it orders nothing, it only must not repeat.
                let mut rng = Rng::with_seed(next.fetch_add(1, Ordering::Relaxed));
                // The first number of neighbouring seeds is alike; a forked generator's is not.
                rng.fork()
            }
        }
    }
}

/// An even draw from nothing to `bound`.
pub(super) fn up_to(bound: Duration, rng: &mut Rng) -> Duration {
    let bound = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(rng.u64(0..=bound))
}

/// Before a quota that tells no time resets: Kong's shortest window is a second, the next a minute.
pub(super) const QUOTA: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(30));

#[cfg(test)]
mod tests;
