//! The one place that reads a clock, so that tests can pause it; and time as the rules count it.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The time of day, for hints that are dates. Nothing is proved with it.
#[expect(clippy::disallowed_methods, reason = "the one place that reads it")]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// Nanoseconds since a limiter's first event: good for 584 years, and arithmetic on it is an
/// instruction where an `Instant` takes ten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Tick(u64);

/// Turns instants into ticks and back.
#[derive(Debug, Default)]
pub(crate) struct Epoch {
    /// Set by the first event and not by the limiter's making, which may happen outside the
    /// runtime whose clock counts.
    first: Option<Instant>,
}

// === impl Tick ===

impl Tick {
    /// Before everything.
    pub(crate) const ZERO: Self = Self(0);
    /// After everything.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(crate) const fn plus(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    pub(crate) const fn minus(self, nanos: u64) -> Self {
        Self(self.0.saturating_sub(nanos))
    }

    /// The next multiple of `step`, or this one itself.
    pub(crate) const fn round_up(self, step: u64) -> Self {
        match self.0.checked_next_multiple_of(step) {
            Some(at) => Self(at),
            None => self,
        }
    }

    /// Nanoseconds from `earlier` to here.
    pub(crate) const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

// === impl Epoch ===

impl Epoch {
    #[inline]
    pub(crate) fn tick(&mut self, at: Instant) -> Tick {
        let first = *self.first.get_or_insert(at);
        Tick(nanos(at.saturating_duration_since(first)))
    }

    /// The instant of a tick; `None` only for one that no clock reaches.
    pub(crate) fn instant(&self, tick: Tick) -> Option<Instant> {
        self.first?.checked_add(Duration::from_nanos(tick.0))
    }
}

#[inline]
pub(crate) fn nanos(time: Duration) -> u64 {
    // In 64 bits, where `Duration::as_nanos` takes 128.
    let whole = time.as_secs().saturating_mul(SECOND);
    whole.saturating_add(u64::from(time.subsec_nanos()))
}

/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;
