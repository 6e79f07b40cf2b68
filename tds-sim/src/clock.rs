//! The one place that reads the clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Time since the simulator's start, and the wall clock a token's claims need.
///
/// The wall clock is read once. Afterwards it advances with the monotonic one, so a paused or
/// advanced tokio clock moves both and a stepping wall clock moves neither.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    wall: i64,
}

// === impl Clock ===

impl Clock {
    /// Starts at zero, with a wall clock that is wrong by `skew_seconds`.
    pub(crate) fn start(skew_seconds: i64) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "JWT claims are wall-clock times; read once, then advanced monotonically"
        )]
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            start: Instant::now(),
            wall: seconds(since_epoch).saturating_add(skew_seconds),
        }
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The wall clock at `now`, in seconds since the epoch, skew included.
    pub(crate) fn wall_at(&self, now: Duration) -> i64 {
        self.wall.saturating_add(seconds(now))
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
