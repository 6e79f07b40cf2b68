//! The one place that reads the clocks, so that tests can pause one and move the other.

use std::{fmt, sync::Arc, time::SystemTime};

use tokio::time::Instant;

use crate::moment::Moment;

/// Both clocks: the steady one is tokio's, the wall is read through a function.
///
/// Two system calls' worth of reading, so no request that finds a fresh token comes by here.
#[derive(Clone)]
pub(crate) struct Clock {
    wall: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

// === impl Clock ===

impl Clock {
    pub(crate) fn with_wall(wall: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self {
            wall: Arc::new(wall),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment {
            steady: Instant::now(),
            wall: (self.wall)(),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "a steady clock stops with a suspended machine, and tokens do not; a step of \
                      this one costs a token request at most, since the earlier of both counts"
        )]
        Self::with_wall(SystemTime::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
