use std::{
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    CallDeadline, Decision, Limit, Priority, Rank, WaitCause, clock, shared::Shared, sync::Arc,
    timer,
};

/// One waiter of a limit. Dropping it gives up its rank.
pub(crate) struct Waiter<L: Limit> {
    shared: Arc<Shared<L>>,
    priority: Priority,
    rank: Option<Rank>,
}

// === impl Waiter ===

impl<L: Limit> Waiter<L> {
    #[inline]
    pub(crate) fn new(shared: &Arc<Shared<L>>, priority: Priority) -> Self {
        Self {
            shared: Arc::clone(shared),
            priority,
            rank: None,
        }
    }

    /// Returns the cause of the wait, and the time until the limit opens.
    pub(crate) fn wait(&self, now: Instant) -> (WaitCause, Option<Duration>) {
        let (at, cause) = self.shared.lock().limit.opens(self.priority, now);
        (cause, at.map(|at| at.saturating_duration_since(now)))
    }
}

impl<L: Limit + Send + 'static> Waiter<L> {
    /// Passes if the limit is open, no other waiter is before this one, and its call `is_ready`; the limit
    /// then counts one more. Otherwise takes or keeps its rank. If it is ready it wants a turn; if
    /// not, later waiters pass until it is polled again.
    ///
    /// # Errors
    /// If this waiter has no rank yet and too many others wait, or if its call has too little time at its
    /// turn to be answered. After an error the waiter has no rank.
    #[inline]
    pub(crate) fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        deadline: Option<&CallDeadline>,
        max_waiting: usize,
        is_ready: bool,
    ) -> Poll<Result<L::Granted, Decision>> {
        let (shared, priority) = (&self.shared, self.priority);
        // Token requests are not measured, are never late, and come in the order of their arrival.
        let deadline = deadline.filter(|_| priority == Priority::Normal);
        let mut state = shared.lock();
        let is_alone = is_ready && self.rank.is_none() && state.queue.is_free();
        if is_alone && state.limit.is_open(priority, now) {
            return Poll::Ready(Ok(state.limit.admit(priority, deadline)));
        }
        let rank = match self.rank {
            Some(rank) => rank,
            None if state.queue.waiting() >= max_waiting => {
                return Poll::Ready(Err(Decision::Rejected));
            }
            None => *self.rank.insert(state.enter(priority, deadline, now)),
        };
        if is_ready && state.queue.is_next(rank) && state.limit.is_open(priority, now) {
            let passed = if state.is_late(deadline, now) {
                Err(Decision::TooLate)
            } else {
                Ok(state.limit.admit(priority, deadline))
            };
            self.rank = None;
            let replaced = state.queue.pass(rank);
            shared.end_event(state, now, replaced);
            return Poll::Ready(passed);
        }
        let replaced = if is_ready {
            state.queue.want(rank, cx.waker().clone())
        } else {
            state.queue.skip(rank)
        };
        let wants_timer = is_ready && !state.has_timer;
        shared.end_event(state, now, replaced);
        if wants_timer {
            timer::spawn(shared);
        }
        Poll::Pending
    }
}

impl<L: Limit> Drop for Waiter<L> {
    fn drop(&mut self) {
        if let Some(rank) = self.rank.take() {
            let mut state = self.shared.lock();
            let replaced = state.queue.leave(rank);
            self.shared.end_event(state, clock::now(), replaced);
        }
    }
}
