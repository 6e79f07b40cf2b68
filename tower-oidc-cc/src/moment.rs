//! A point in time on two clocks. Arithmetic, no clock.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// What both clocks showed, or will show.
///
/// The steady clock may stop while a machine is suspended; the wall clock may be set. A moment
/// has come as soon as either clock has reached it: a token is then dropped too early at worst,
/// which costs a token request, and never too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) steady: Instant,
    pub(crate) wall: SystemTime,
}

// === impl Moment ===

impl Moment {
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

    /// How long it is until this moment, by the clock that gets there first; zero if it has come.
    pub(crate) fn left_at(self, now: Self) -> Duration {
        let steady = self.steady.saturating_duration_since(now.steady);
        let wall = self.wall.duration_since(now.wall).unwrap_or_default();
        steady.min(wall)
    }

    /// How long ago this moment was, by the clock that says more.
    pub(crate) fn age_at(self, now: Self) -> Duration {
        let steady = now.steady.saturating_duration_since(self.steady);
        let wall = now.wall.duration_since(self.wall).unwrap_or_default();
        steady.max(wall)
    }

    pub(crate) fn has_come_at(self, now: Self) -> bool {
        self.left_at(now).is_zero()
    }
}
