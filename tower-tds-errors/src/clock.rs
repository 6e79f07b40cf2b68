//! The crate's only clock, and its only timer.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::SystemTime;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that is created when a wait begins, so an immediate response costs none.
///
/// Outside a runtime it wakes no task. Each poll then compares it with the clock.
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

    /// Whether the timer wakes the task that polls it.
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

    /// Polls the timer. One that is not set stays pending.
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

/// The wall clock, for `retry_at` and for dates without a `Date` header.
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
