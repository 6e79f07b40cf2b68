//! The one place that reads a clock, and the one timer.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::SystemTime;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that is not set until a wait begins: a response that is there at once costs none.
///
/// Outside a runtime it wakes no task. It is compared with the clock at each poll then.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    at: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

// === impl Timer ===

impl Timer {
    pub(crate) const fn is_set(&self) -> bool {
        self.at.is_some()
    }

    /// Whether it wakes the task that polls it.
    pub(crate) const fn has_clock(&self) -> bool {
        self.sleep.is_some()
    }

    pub(crate) fn set(&mut self, at: Option<Instant>) {
        self.at = at;
        let awaited = at.filter(|_| Handle::try_current().is_ok());
        match (&mut self.sleep, awaited) {
            (Some(sleep), Some(at)) => sleep.as_mut().reset(at),
            (sleep, awaited) => *sleep = awaited.map(|at| Box::pin(sleep_until(at))),
        }
    }

    /// Whether its time has come. One that is not set stays pending.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match (&mut self.sleep, self.at) {
            (Some(sleep), _) => sleep.as_mut().poll(cx),
            (None, Some(at)) if at <= now() => Poll::Ready(()),
            (None, _) => Poll::Pending,
        }
    }
}

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

#[cfg(test)]
mod tests;
