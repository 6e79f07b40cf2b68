//! The wait for a limit: first in, first out, in one queue that skips waiters that are not polled.
//!
//! ```text
//! waiter.rs   one waiter, polled by its future
//! shared.rs   the limit and its queue, under one lock
//! queue.rs    the order of the waiters and whose turn it is: arithmetic on `now`
//! timer.rs    the task that wakes the next waiter when the limit opens by time alone
//! ```

mod queue;
mod shared;
mod timer;
mod waiter;

use tokio::time::Instant;

pub(crate) use self::{
    shared::Shared,
    waiter::{Refusal, Waiter},
};
use crate::{WaitCause, clock, sync};

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

#[cfg(test)]
mod tests;
