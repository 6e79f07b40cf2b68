//! Waiting for a limit: one queue, in which the call that must start first is first, and which skips
//! waiters that are not polled.
//!
//! ```text
//! shared.rs   the limit and its queue, under one lock, and a waiter
//! queue.rs    the order of the waiters and whose turn it is: arithmetic on `now`
//! timer.rs    the task that wakes the next waiter when the limit opens by time alone
//! ```

mod queue;
pub(crate) mod shared;
mod timer;

use std::{sync, time::Duration};

use tokio::time::Instant;

use crate::{clock, error::WaitCause};

/// Limit on requests or sockets, as a state machine that is pure arithmetic: it decides when one
/// more may pass.
pub(crate) trait Limit {
    /// Value that a waiter gets when it passes.
    type Granted;

    /// When one more of this line may pass, as far as that is known at `now`.
    ///
    /// Any instant that it returns lies after `now`.
    fn opens(&mut self, line: Line, now: Instant) -> Opens;

    /// Counts one more. Call it right after `opens` has returned [`Opens::Now`] for the same `now`.
    fn admit(&mut self, line: Line, bounds: &Bounds, now: Instant) -> Self::Granted;

    /// Returns the cause of this line's wait while `opens` is not [`Opens::Now`].
    fn cause(&mut self, line: Line, now: Instant) -> WaitCause;

    /// Returns the usual time from a grant to where such a deadline ends, if it is known.
    fn usual(&self, _deadline: &Deadline) -> Option<Duration> {
        None
    }
}

/// Part of the queue in which a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    /// Ahead of all others, for token requests, on which the others depend.
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

/// Bounds of a call's wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) most_waiting: usize,
    pub(crate) deadline: Option<Deadline>,
}

/// When a call ends, and how long that is after its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) whole: Duration,
    /// Whether it ends with the response body, and not with its head.
    pub(crate) has_body: bool,
}

/// Why a waiter gets no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The queue is full.
    Full,
    /// At its turn the call has too little time to be answered, and another call can use the permit.
    Late,
}

// === impl Bounds ===

impl Bounds {
    /// Any number may wait, for as long as it takes.
    pub(crate) const NONE: Self = Self {
        most_waiting: usize::MAX,
        deadline: None,
    };
}

// === impl Opens ===

impl Opens {
    pub(crate) fn at(self) -> Option<Instant> {
        match self {
            Self::At(at) => Some(at),
            Self::Now | Self::OnReturn => None,
        }
    }
}

#[cfg(test)]
mod tests;
