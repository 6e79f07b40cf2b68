//! A `Service`'s readiness behind a queue: the inner service first, then a permit.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use super::{Bound, Limit, Line, Queue, Waiter};
use crate::LimitError;

/// One caller's turn: waited for in `poll_ready`, taken in `call`. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Readiness<L: Limit + Send + 'static> {
    waiter: Waiter<L>,
    bound: Bound,
    stage: Stage<L::Grant>,
}

#[derive(Debug)]
enum Stage<G> {
    // ## Unready => InnerReady
    Unready,
    /// Remembered, because an inner service need not say it twice.
    // ## InnerReady => (Granted | Refused)
    InnerReady,
    // ## Granted => Unready, by `take`
    Granted(G),
    /// Told by the response future: a `poll_ready` error would be final.
    // ## Refused => Unready, by `take`
    Refused(LimitError),
}

// === impl Readiness ===

impl<L: Limit + Send + 'static> Readiness<L> {
    pub(crate) fn new(queue: &Arc<Queue<L>>, line: Line, longest: Option<Duration>) -> Self {
        Self {
            waiter: Waiter::new(Arc::clone(queue), line),
            bound: Bound::new(longest),
            stage: Stage::Unready,
        }
    }

    pub(crate) fn queue(&self) -> &Arc<Queue<L>> {
        self.waiter.queue()
    }

    pub(crate) fn bound(&mut self) -> &mut Bound {
        &mut self.bound
    }

    /// How long a wait may last, if that is bounded.
    pub(crate) fn longest(&self) -> Option<Duration> {
        self.bound.longest()
    }

    /// Another caller's in the same queue: no permit, no place in the queue.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.queue(), self.waiter.line(), self.longest())
    }

    /// That of a call whose permit is over: its inner service is ready.
    pub(crate) fn late(&self) -> Self {
        let line = self.waiter.line().late();
        let mut late = Self::new(self.queue(), line, self.longest());
        late.stage = Stage::InnerReady;
        late
    }

    /// Waits for the inner service and then for a permit.
    ///
    /// The permit comes last because it is counted from its grant, and whatever the inner
    /// service waits for would be counted with it.
    ///
    /// # Errors
    /// Only the inner service's own.
    #[inline]
    pub(crate) fn poll_ready<E>(
        &mut self,
        cx: &mut Context<'_>,
        inner: impl FnOnce(&mut Context<'_>) -> Poll<Result<(), E>>,
    ) -> Poll<Result<(), E>> {
        if let Stage::Unready = self.stage {
            ready!(inner(cx))?;
            self.stage = Stage::InnerReady;
        }
        if let Stage::InnerReady = self.stage {
            self.stage = match ready!(self.waiter.poll_pass(&mut self.bound, cx)) {
                Ok(grant) => Stage::Granted(grant),
                Err(refused) => Stage::Refused(refused),
            };
            self.bound.end();
        }
        Poll::Ready(Ok(()))
    }

    /// Whether `call` may come.
    #[inline]
    pub(crate) fn is_decided(&self) -> bool {
        matches!(self.stage, Stage::Granted(_) | Stage::Refused(_))
    }

    /// Whether `call` will take a permit.
    #[inline]
    pub(crate) fn is_granted(&self) -> bool {
        matches!(self.stage, Stage::Granted(_))
    }

    /// Gives back a permit, or a place in the queue, and waits anew at the next poll.
    pub(crate) fn step_back(&mut self) {
        self.waiter.give_up();
        if let Stage::Granted(grant) = self.stage {
            self.stage = Stage::InnerReady;
            self.queue().update(|limit| limit.withdraw(grant));
        }
    }

    /// Ends the wait with `error` for the response future. Says whether nobody was before it.
    pub(crate) fn refuse(&mut self, error: LimitError) -> bool {
        self.bound.end();
        self.stage = Stage::Refused(error);
        self.waiter.give_up()
    }

    /// Takes what `poll_ready` came to.
    ///
    /// # Errors
    /// The wait was too long.
    ///
    /// # Panics
    /// If `poll_ready` did not give Ready before.
    #[expect(
        clippy::panic,
        reason = "calling an unready service is a programmer's error, and panicking the contract's answer"
    )]
    #[inline]
    pub(crate) fn take(&mut self) -> Result<L::Grant, LimitError> {
        if let Stage::Granted(grant) = self.stage {
            self.stage = Stage::Unready;
            return Ok(grant);
        }
        match mem::replace(&mut self.stage, Stage::Unready) {
            Stage::Refused(error) => Err(error),
            Stage::Granted(_) | Stage::Unready | Stage::InnerReady => {
                panic!("`poll_ready` must give Ready before `call`")
            }
        }
    }
}

impl<L: Limit + Send + 'static> Drop for Readiness<L> {
    fn drop(&mut self) {
        self.step_back();
    }
}
