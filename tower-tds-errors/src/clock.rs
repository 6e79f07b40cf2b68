//! Clock and timer of this crate.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, Sleep, sleep_until};

/// Timer that is created when a wait begins, because an immediate response needs none. Creating it panics outside of a
/// tokio runtime with timers.
#[derive(Debug, Default)]
pub(crate) struct Timer(Option<Pin<Box<Sleep>>>);

/// Margin before the deadline: a layer that holds a response, or reads its body, hands it up this early, so that the
/// layers above can still return it. No attempt begins within the margin.
pub(crate) const HEADROOM: Duration = Duration::from_millis(10);

// === impl Timer ===

impl Timer {
    /// Waits until `at`, or forever if it is `None`.
    pub(crate) fn poll(&mut self, at: Option<Instant>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = at else {
            return Poll::Pending;
        };
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(at)));
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
    #[expect(
        clippy::disallowed_methods,
        reason = "a date from a server, or for a person, has no meaning on a monotonic clock"
    )]
    SystemTime::now()
}
