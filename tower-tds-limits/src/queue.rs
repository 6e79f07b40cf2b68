//! The wait queue: first in, first out, before a limit that opens at its own times.
//!
//! Whoever waits is called when the limit is open, and passes when it looks. One is called at a
//! time. One that has been called and does not look for [`PATIENCE`](shared::PATIENCE) is passed over: it keeps its
//! turn for when it looks, and the next is called. So a future that nobody polls stops nobody.

mod alarm;
mod readiness;
mod rows;
mod shared;

use std::task::Waker;

use tokio::time::Instant;

pub(crate) use self::{
    readiness::{Readiness, Waiter},
    rows::Node,
    shared::Queue,
};
use crate::{
    WaitCause, clock, sync,
    waits::{Over, Waits},
};

/// A pure state machine that says when one more may pass.
pub(crate) trait Limit {
    /// What is remembered of a grant.
    type Grant: Copy;

    /// When one more from this line may pass, as far as is known at `now`.
    fn opens(&mut self, line: Line, now: Instant) -> Opens;

    /// Counts one more; called only right after `opens` was [`Opens::Now`] at `now`.
    fn admit(&mut self, now: Instant) -> Self::Grant;

    /// One that was counted was not used.
    fn withdraw(&mut self, grant: Self::Grant);

    /// So many wait, and the limit is not open, or none: makes room if it can, and gives whom that
    /// concerns.
    fn waits(&mut self, _waiting: usize, _now: Instant) -> Vec<Waker> {
        Vec::new()
    }

    /// When it may be open sooner than `opens` says, though nothing happens until then.
    fn changes_at(&self) -> Option<Instant> {
        None
    }

    /// Whether nothing is under way, where anybody waits for that.
    fn is_idle(&self) -> bool {
        false
    }

    /// What one from this line waits for, where `opens` is not [`Opens::Now`].
    fn cause(&mut self, line: Line, now: Instant) -> WaitCause;
}

/// Which of those who wait go before which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    /// Who is first in line: before all others, the last to come first. What these wait for may depend on it.
    Front,
    /// Who has had its turn and was too slow to use it: before those at the back, first in, first out.
    Late,
    /// Everybody else, first in, first out.
    Back,
}

impl Line {
    /// Where one of this line stands that has had its turn. At the front it has nobody before it for long.
    pub(crate) fn late(self) -> Self {
        match self {
            Self::Late | Self::Back => Self::Late,
            Self::Front => Self::Front,
        }
    }
}

/// When one more may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opens {
    /// At once.
    Now,
    /// Not before this instant, unless something is returned earlier.
    At(Instant),
    /// Not before something is returned, at a time nobody knows yet.
    OnReturn,
}

#[cfg(test)]
mod tests;
