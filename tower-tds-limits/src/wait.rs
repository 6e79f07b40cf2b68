//! Waiting for a limit: one queue, in which the call that must start first is first, and which skips
//! waiters that are not polled.
//!
//! ```text
//! shared.rs   the limit and its queue, under one lock
//! waiter.rs   one waiter, which passes or keeps its place
//! queue.rs    the order of the waiters and whose turn it is: arithmetic on `now`
//! timer.rs    the task that wakes the next waiter when the limit opens by time alone
//! ```

mod queue;
pub(crate) mod shared;
mod timer;
pub(crate) mod waiter;

use std::{sync, time::Duration};

use tokio::time::Instant;

use crate::{
    clock,
    error::{Kind, WaitCause},
};

/// Limit on requests or sockets, as a state machine that is pure arithmetic: it decides when one
/// more may pass.
pub(crate) trait Limit {
    /// Value that a waiter gets when it passes.
    type Granted;

    /// Returns when one more of this line may pass, as far as that is known at `now`, and the cause of
    /// the wait until then. Without a time it depends on an event.
    fn opens(&mut self, line: Line, now: Instant) -> (Option<Instant>, WaitCause);

    /// Whether one more of this line may pass at `now`.
    fn is_open(&mut self, line: Line, now: Instant) -> bool {
        self.opens(line, now).0.is_some_and(|at| at <= now)
    }

    /// Counts one more. Call it right after `is_open` at the same time.
    fn admit(&mut self, line: Line, deadline: Option<&Deadline>) -> Self::Granted;

    /// Returns the usual time from a grant to where such a deadline ends; zero if it is not known.
    fn usual(&self, _line: Line, _deadline: &Deadline) -> Duration {
        Duration::ZERO
    }
}

/// Part of the queue in which a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    /// Ahead of all others, for token requests, on which the others depend.
    Front,
    Back,
}

/// When a call ends, and how long that is after its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) whole: Duration,
    /// Whether it ends with the response body, and not with its head.
    pub(crate) has_body: bool,
}

#[cfg(test)]
mod tests;
