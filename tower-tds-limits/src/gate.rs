//! A first-in, first-out queue before something that admits at its own times.
//!
//! There is no background task. Only the front waiter looks at the rule, with a timer of its own
//! if the rule names an instant; whoever changes the rule's state wakes the front waiter if that
//! changes what it waits for; whoever leaves the front wakes the next.

mod shared;
mod turn;
mod waiter;
mod waiters;

use tokio::time::Instant;

use crate::sync;

pub(crate) use self::{
    shared::Gate,
    turn::{Permit, Turn},
    waiter::Waiter,
};

/// A pure state machine that says when one more may pass.
pub(crate) trait Admit {
    /// What is remembered of a grant.
    type Grant: Copy;

    /// When one more may pass, as far as is known at `now`.
    fn earliest(&mut self, now: Instant) -> Earliest;

    /// As `earliest`, for one who goes before those who wait.
    fn earliest_in_front(&mut self, now: Instant) -> Earliest {
        self.earliest(now)
    }

    /// Counts one more; called only when `earliest`, or that in front, is [`Earliest::Now`].
    fn admit(&mut self, now: Instant) -> Self::Grant;

    /// Counts one more without a look at the clock, if that is right whatever it says.
    fn admit_undated(&mut self) -> Option<Self::Grant>;
}

/// Where in the queue one who comes takes a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Line {
    #[default]
    Back,
    /// Before whoever waits, also before others who came to the front.
    Front,
}

/// When one more may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Earliest {
    /// At once.
    Now,
    /// Not before this instant, unless something is returned earlier.
    At(Instant),
    /// Not before something is returned, at a time nobody knows yet.
    OnReturn,
}

#[cfg(test)]
mod tests;
