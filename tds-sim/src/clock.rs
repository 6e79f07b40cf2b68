//! The clocks, and how data behind a lock is read.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::Instant;

/// Time since the simulator's start, and the wall clock a token's claims need.
///
/// The wall clock is read once. Afterwards it advances with the monotonic one, so a paused or
/// advanced tokio clock moves both and a stepping wall clock moves neither.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    wall: Duration,
}

// === impl Clock ===

impl Clock {
    pub(crate) fn start() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "JWT claims are wall-clock times; read once, then advanced monotonically"
        )]
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            start: Instant::now(),
            wall: since_epoch,
        }
    }

    /// Returns the time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the wall clock at `now`, in seconds since the epoch.
    pub(crate) fn wall_at(&self, now: Duration) -> i64 {
        i64::try_from(self.wall.saturating_add(now).as_secs()).unwrap_or(i64::MAX)
    }
}

/// Locks `mutex`, even if it is poisoned.
///
/// The data behind every lock of this crate is consistent at each statement, so a panic of
/// another holder leaves nothing half done. No `.await` happens under a lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
