//! The one look at the clock.

use tokio::time::Instant;

/// Now, on a clock that never goes back.
pub(crate) fn now() -> Instant {
    Instant::now()
}
