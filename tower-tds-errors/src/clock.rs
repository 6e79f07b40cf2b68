//! The one place that reads a clock, and the one timer.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::SystemTime;

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

pin_project! {
    /// Not set until something has to be waited for: an answer that is there at once costs no timer.
    ///
    /// Outside a runtime it wakes nothing: then it is looked at and no more.
    pub(crate) struct Timer {
        at: Option<Instant>,
        #[pin]
        sleep: Option<Sleep>,
    }
}

// === impl Timer ===

impl Timer {
    pub(crate) const fn new() -> Self {
        Self {
            at: None,
            sleep: None,
        }
    }

    pub(crate) const fn is_set(&self) -> bool {
        self.at.is_some()
    }

    /// Whether somebody wakes who waits for it.
    pub(crate) const fn has_clock(&self) -> bool {
        self.sleep.is_some()
    }

    pub(crate) fn set(self: Pin<&mut Self>, at: Option<Instant>) {
        let mut this = self.project();
        *this.at = at;
        let awaited = at.filter(|_| Handle::try_current().is_ok());
        match (this.sleep.as_mut().as_pin_mut(), awaited) {
            (Some(sleep), Some(at)) => sleep.reset(at),
            (_, awaited) => this.sleep.set(awaited.map(sleep_until)),
        }
    }

    /// Whether the time it is set to has come. It never does if it is not set.
    pub(crate) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let at = self.at;
        match (self.project().sleep.as_pin_mut(), at) {
            (Some(sleep), _) => sleep.poll(cx),
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
