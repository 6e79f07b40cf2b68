//! The two clocks, and a timestamp of both. No other module reads a clock.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// Both clocks: tokio's steady one, and the wall clock, which is the system's or a function.
#[derive(Clone, Default)]
pub(crate) struct Clock {
    wall: Option<Arc<dyn Fn() -> SystemTime + Send + Sync>>,
}

/// A moment on both clocks.
///
/// The steady clock may stop while a machine is suspended, and the wall clock may be set, so a
/// timestamp has come when either clock has reached it. At worst, a token is dropped too early, which
/// costs one token request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timestamp {
    pub(crate) steady: Instant,
    pub(crate) wall: SystemTime,
}

// === impl Clock ===

impl Clock {
    pub(crate) fn with_wall(wall: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self {
            wall: Some(Arc::new(wall)),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp {
            steady: Instant::now(),
            wall: self.wall(),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "tokens expire while a machine is suspended, and a steady clock may stop then; a step \
                  of the wall clock costs one token request at most, because the earlier clock counts"
    )]
    #[inline]
    pub(crate) fn wall(&self) -> SystemTime {
        let wall = self.wall.as_ref();
        wall.map_or_else(SystemTime::now, |wall| wall())
    }
}

// === impl Timestamp ===

impl Timestamp {
    pub(crate) fn checked_add(self, duration: Duration) -> Option<Self> {
        Some(Self {
            steady: self.steady.checked_add(duration)?,
            wall: self.wall.checked_add(duration)?,
        })
    }

    pub(crate) fn checked_sub(self, duration: Duration) -> Option<Self> {
        Some(Self {
            steady: self.steady.checked_sub(duration)?,
            wall: self.wall.checked_sub(duration)?,
        })
    }

    /// Returns the time until this timestamp, by the clock that reaches it first; zero if it has come.
    pub(crate) fn left_at(self, now: Self) -> Duration {
        let steady = self.steady.saturating_duration_since(now.steady);
        let wall = self.wall.duration_since(now.wall).unwrap_or_default();
        steady.min(wall)
    }

    /// Returns the age of this timestamp, by the clock that shows more.
    pub(crate) fn age_at(self, now: Self) -> Duration {
        let steady = now.steady.saturating_duration_since(self.steady);
        let wall = now.wall.duration_since(self.wall).unwrap_or_default();
        steady.max(wall)
    }

    pub(crate) fn has_come_at(self, now: Self) -> bool {
        self.steady <= now.steady || self.wall <= now.wall
    }
}
