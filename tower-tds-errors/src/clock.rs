//! The crate's clock, its timer, and the deadline of a call.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::SystemTime;

use http::Extensions;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

/// The deadline of a call: an extension of its request, for the layers below a retry layer.
///
/// A layer that reads it ends with the cause of its wait, or with a status. A
/// [`Retry`](crate::Retry) layer obeys the one of its caller, and sets its own on each attempt.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tokio::time::Instant;
/// use tower_tds_errors::DeadlineAt;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(DeadlineAt(Instant::now() + Duration::from_secs(5)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineAt(pub Instant);

/// A timer that is created when a wait begins, so an immediate response costs none.
///
/// Outside a runtime it wakes no task. Each poll then compares it with the clock.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    at: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

// === impl DeadlineAt ===

impl DeadlineAt {
    /// The deadline in a request's extensions, for `deadline_from` of layers below.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<Instant> {
        extensions.get::<Self>().map(|deadline| deadline.0)
    }
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
#[inline]
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
