//! The one place that reads a clock, so that tests can pause it.

use tokio::time::Instant;

pub(crate) fn now() -> Instant {
    Instant::now()
}
