use std::{
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Deadline, Kind, Limit, Line, WaitCause, clock, queue::Place, shared::Shared, sync::Arc, timer,
};

/// One waiter of a limit. Dropping it gives up its place.
#[derive(Debug)]
pub(crate) struct Waiter<L: Limit> {
    shared: Arc<Shared<L>>,
    line: Line,
    place: Option<Place>,
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

    /// Returns the cause of the wait, and the time until the limit opens.
    pub(crate) fn wait(&self, now: Instant) -> (WaitCause, Option<Duration>) {
        let (at, cause) = self.shared.lock().limit.opens(self.line, now);
        (cause, at.map(|at| at.saturating_duration_since(now)))
    }
}

impl<L: Limit + Send + 'static> Waiter<L> {
    /// Passes if the limit is open, no other waiter is before this one, and its call `is_ready`; the limit
    /// then counts one more. Otherwise takes or keeps its place. If it is ready it wants a turn; if
    /// not, later waiters pass until it is polled again.
    ///
    /// # Errors
    /// If this waiter has no place yet and too many others wait, or if its call has too little time at its
    /// turn to be answered. After an error the waiter has no place.
    #[inline]
    pub(crate) fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        deadline: Option<&Deadline>,
        max_waiting: usize,
        is_ready: bool,
    ) -> Poll<Result<L::Granted, Kind>> {
        let (shared, line) = (&self.shared, self.line);
        let mut state = shared.lock();
        let is_alone = is_ready && self.place.is_none() && state.queue.is_free();
        if is_alone && state.limit.is_open(line, now) {
            return Poll::Ready(Ok(state.limit.admit(line, deadline)));
        }
        let place = match self.place {
            Some(place) => place,
            None if state.queue.waiting() >= max_waiting => {
                return Poll::Ready(Err(Kind::Rejected));
            }
            None => *self.place.insert(state.enter(line, deadline, now)),
        };
        if is_ready && state.queue.is_next(place) && state.limit.is_open(line, now) {
            let passed = if state.is_late(line, deadline, now) {
                Err(Kind::Hopeless)
            } else {
                Ok(state.limit.admit(line, deadline))
            };
            self.place = None;
            let replaced = state.queue.pass(place);
            shared.end_event(state, now, replaced);
            return Poll::Ready(passed);
        }
        let replaced = if is_ready {
            state.queue.want(place, cx.waker().clone())
        } else {
            state.queue.skip(place)
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
        if let Some(place) = self.place.take() {
            let mut state = self.shared.lock();
            let replaced = state.queue.leave(place);
            self.shared.end_event(state, clock::now(), replaced);
        }
    }
}
