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

    /// Milliseconds since 1970, for the look at a token's expiry that each call takes. It may be
    /// behind by [`COARSE`].
    #[inline]
    pub(crate) fn millis(&self) -> u64 {
        match &self.wall {
            None => coarse(),
            Some(wall) => millis(wall()),
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
    let millis = |secs: u64, nanos: u64| secs.saturating_mul(1_000).saturating_add(nanos >> 20);
    // A mebi-nanosecond is 1.05 ms: less is behind, and within the bound.
    millis(
        now.tv_sec.try_into().unwrap_or(0),
        now.tv_nsec.try_into().unwrap_or(0),
    )
}

#[cfg(not(target_os = "linux"))]
#[inline]
fn coarse() -> u64 {
    millis(Clock::default().wall())
}

/// How far behind the coarse clock may be: a tick of 100 Hz, what the shift above loses of a second,
/// and as much again. Other clocks are looked at exactly, and tokens end this much too early for a
/// call that looks: it then asks both clocks.
pub(crate) const COARSE: u64 = 100;

/// Milliseconds since 1970; none before it.
pub(crate) fn millis(wall: SystemTime) -> u64 {
    let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
