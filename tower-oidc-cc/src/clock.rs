//! The two clocks, and a point in time on both. The one place that reads them.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// Both clocks: the steady one is tokio's, the wall clock may be read through a function.
#[derive(Clone, Default)]
pub(crate) struct Clock {
    wall: Option<Arc<dyn Fn() -> SystemTime + Send + Sync>>,
}

/// What both clocks showed, or will show.
///
/// The steady clock may stop while a machine is suspended; the wall clock may be set. A timestamp
/// has come as soon as either clock has reached it: a token is then dropped too early at worst,
/// which costs a token request, and never too late.
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

    /// Whole seconds since 1970, for the look at a token's expiry that each call takes. It may be
    /// behind by [`COARSE`].
    #[inline]
    pub(crate) fn seconds(&self) -> u64 {
        match &self.wall {
            None => coarse(),
            Some(wall) => seconds(wall()),
        }
    }

    #[inline]
    #[expect(
        clippy::disallowed_methods,
        reason = "a steady clock stops with a suspended machine, and tokens do not; a step of this \
                  one costs a token request at most, since the earlier of both counts"
    )]
    fn wall(&self) -> SystemTime {
        match &self.wall {
            None => SystemTime::now(),
            Some(wall) => wall(),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
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

    /// How long it is until this timestamp, by the clock that gets there first; zero if it has come.
    pub(crate) fn left_at(self, now: Self) -> Duration {
        let steady = self.steady.saturating_duration_since(now.steady);
        let wall = self.wall.duration_since(now.wall).unwrap_or_default();
        steady.min(wall)
    }

    /// How long ago this timestamp was, by the clock that says more.
    pub(crate) fn age_at(self, now: Self) -> Duration {
        let steady = now.steady.saturating_duration_since(self.steady);
        let wall = now.wall.duration_since(self.wall).unwrap_or_default();
        steady.max(wall)
    }

    pub(crate) fn has_come_at(self, now: Self) -> bool {
        self.left_at(now).is_zero()
    }
}

/// What the kernel noted at its last tick: a fifth of the price of an exact look.
#[cfg(target_os = "linux")]
#[inline]
fn coarse() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    // Before 1970 there is no time: what is later than all else is no token's.
    now.tv_sec.try_into().unwrap_or(u64::MAX)
}

#[cfg(not(target_os = "linux"))]
#[inline]
fn coarse() -> u64 {
    seconds(Clock::default().wall())
}

/// How far behind the coarse clock may be: a tick of 100 Hz, ten times over. Tokens end this much
/// too early, and up to a second, for a call that looks: it then asks both clocks.
pub(crate) const COARSE: Duration = Duration::from_millis(100);

/// Whole seconds since 1970; none before it.
pub(crate) fn seconds(wall: SystemTime) -> u64 {
    let since = wall.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
