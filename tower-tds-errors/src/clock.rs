//! The one place that reads a clock.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// The monotonic clock, which a test can pause.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The wall clock, for what leaves the process: `retry_at`, and dates that no `Date` goes with.
pub(crate) fn wall() -> SystemTime {
    #[cfg(test)]
    if let Some(set) = tests::set() {
        return set;
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "a date from a server, or for a person, has no meaning on a monotonic clock"
    )]
    SystemTime::now()
}

/// The wall time after `wait`, unless the calendar ends before.
pub(crate) fn wall_after(wait: Duration) -> Option<SystemTime> {
    wall().checked_add(wait)
}

#[cfg(test)]
mod tests;
