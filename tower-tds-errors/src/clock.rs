//! Clock and timer of this crate.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

/// Timer that is created when a wait begins, because an immediate response needs none.
///
/// Outside a runtime no timer is created, and each poll compares the deadline with the clock.
#[derive(Debug, Default)]
pub(crate) struct Timer(Option<Pin<Box<Sleep>>>);

/// Margin before the deadline: a layer that holds a response, or reads its body, hands it up this early, so that the
/// layers above can still return it. No attempt begins within the margin.
pub(crate) const HEADROOM: Duration = Duration::from_millis(10);

// === impl Timer ===

impl Timer {
    /// Whether there is a timer that wakes the polling task.
    pub(crate) const fn has_clock(&self) -> bool {
        self.0.is_some()
    }

    /// Sleeps until `at`. Returns false if no timer would wake the task, because there is no runtime.
    pub(crate) async fn sleep_until(&mut self, at: Instant) -> bool {
        poll_fn(|cx| match self.poll(Some(at), cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if self.has_clock() => Poll::Pending,
            Poll::Pending => Poll::Ready(false),
        })
        .await
    }

    /// Waits until `at`, or forever if it is `None`.
    pub(crate) fn poll(&mut self, at: Option<Instant>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = at else {
            return Poll::Pending;
        };
        // The clock decides, because the timer of a layer above may fire before this one.
        if at <= now() {
            return Poll::Ready(());
        }
        if self.0.is_none() && Handle::try_current().is_ok() {
            self.0 = Some(Box::pin(sleep_until(at)));
        }
        let Some(sleep) = &mut self.0 else {
            return Poll::Pending;
        };
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.as_mut().poll(cx)
    }
}

/// Returns the monotonic clock, which a test can pause.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the wall clock, for dates without a `Date` header.
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
