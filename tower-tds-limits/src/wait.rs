//! The wait for a limit: first in, first out, in one queue that skips waiters that are not polled.
//!
//! ```text
//! shared.rs   the limit and its queue, under one lock
//! queue.rs    the order of the waiters and whose turn it is: arithmetic on `now`
//! timer.rs    the task that wakes the next waiter when the limit opens by time alone
//! ```

mod queue;
mod shared;
mod timer;

use std::{
    fmt, sync,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;

pub(crate) use self::shared::Shared;
use self::{queue::Place, shared::Passed, timer::Timer};
use crate::clock;

/// A pure state machine that decides when one more may pass.
pub(crate) trait Limit {
    /// The value that a waiter gets when it passes.
    type Grant;

    /// When one more from this line may pass, as far as is known at `now`.
    ///
    /// An instant that is returned lies after `now`.
    fn opens(&mut self, line: Line, now: Instant) -> Opens;

    /// Counts one more. Called right after `opens` returned [`Opens::Now`] for the same `now`.
    fn admit(&mut self, line: Line, now: Instant) -> Self::Grant;

    /// When the limit must be checked again, if that is before it opens.
    fn changes_at(&self) -> Option<Instant> {
        None
    }

    /// The cause of this line's wait while `opens` is not [`Opens::Now`].
    fn cause(&mut self, line: Line, now: Instant) -> WaitCause;

    /// Whether nothing is in flight.
    fn is_idle(&self) -> bool {
        false
    }

    /// Whether a warning is due about a wait that only the caller can end. Returned once.
    fn take_warning(&mut self, _now: Instant) -> bool {
        false
    }
}

/// Which waiters go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    /// Before all others: token requests, on which the others depend.
    Front,
    Back,
}

/// When one more may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opens {
    Now,
    /// Not before this instant, unless an event opens the limit earlier.
    At(Instant),
    /// Not before an event whose time is unknown.
    OnReturn,
}

/// One waiter of a limit. Dropping it gives up its place.
#[derive(Debug)]
pub(crate) struct Waiter<L: Limit> {
    shared: Arc<Shared<L>>,
    line: Line,
    place: Option<Place>,
}

/// Why a call may not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) cause: WaitCause,
    /// How long until the limit opens, if that is known.
    pub(crate) wait: Option<Duration>,
}

/// The queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// The cause of a call's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WaitCause {
    /// The readiness of the inner service, such as a token.
    Readiness,
    /// A permit of a quota, all of whose permits are live.
    Window,
    /// Room in a sliding-window counter.
    Counter,
    /// Room in a leaky bucket.
    Bucket,
    /// A place in flight: [`Limits::in_flight`](crate::Limits::in_flight).
    InFlight,
    /// The end of the silence after a refusal that concerns the address.
    Silence,
    /// The end of this credential's pause after a 429.
    Pause,
    /// A socket: [`Limits::connections`](crate::Limits::connections), or a connection of the client.
    Connection,
    /// The response head, after the request was sent.
    Response,
    /// A [`Share`](crate::Share) of the limits: it is empty, or it has ended.
    Share,
}

// === impl Waiter ===

impl<L: Limit> Waiter<L> {
    #[inline]
    pub(crate) fn new(shared: &Arc<Shared<L>>, line: Line) -> Self {
        Self {
            shared: Arc::clone(shared),
            line,
            place: None,
        }
    }

    /// Keeps the place, and lets later waiters pass until this one is polled again.
    ///
    /// # Errors
    /// If it has no place and `most_waiting` others wait.
    pub(crate) fn skip(&mut self, most_waiting: usize) -> Result<(), Full> {
        self.place = self.shared.skip(self.place, self.line, most_waiting);
        self.place.map(drop).ok_or(Full)
    }

    /// The cause of the wait, and the time until the limit opens.
    pub(crate) fn wait(&self, now: Instant) -> Refusal {
        let (cause, at) = self.shared.wait(self.line, now);
        let wait = at.map(|at| at.saturating_duration_since(now));
        Refusal { cause, wait }
    }

    /// Gives up the place.
    pub(crate) fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            self.shared.leave(place);
        }
    }
}

impl<L: Limit + Send + 'static> Waiter<L> {
    /// Waits until the limit has counted one more.
    ///
    /// # Errors
    /// If it has no place and `most_waiting` others wait.
    #[inline]
    pub(crate) fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        most_waiting: usize,
    ) -> Poll<Result<L::Grant, Full>> {
        let passed = self
            .shared
            .pass(self.place, self.line, most_waiting, now, cx.waker());
        match passed {
            Passed::Granted(grant) => {
                self.place = None;
                Poll::Ready(Ok(grant))
            }
            Passed::Full => Poll::Ready(Err(Full)),
            Passed::Waits { place, wants_timer } => {
                self.place = Some(place);
                if wants_timer {
                    Timer::spawn(&self.shared);
                }
                Poll::Pending
            }
        }
    }
}

impl<L: Limit> Drop for Waiter<L> {
    fn drop(&mut self) {
        self.leave();
    }
}

// === impl WaitCause ===

impl WaitCause {
    /// A short, stable name for labels and fields.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Readiness => "readiness",
            Self::Window => "window",
            Self::Counter => "counter",
            Self::Bucket => "bucket",
            Self::InFlight => "in_flight",
            Self::Silence => "silence",
            Self::Pause => "pause",
            Self::Connection => "connection",
            Self::Response => "response",
            Self::Share => "share",
        }
    }
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Share => "a share of the fleet's limits",
            Self::Readiness => "the inner service, such as a token",
            Self::Window | Self::Counter | Self::Bucket => "the rate limit",
            Self::InFlight => "another response body to end",
            Self::Silence => "the end of the silence after a refusal",
            Self::Pause => "the end of the pause after a 429",
            Self::Connection => "a connection",
            Self::Response => "a response",
        })
    }
}

#[cfg(test)]
mod tests;
