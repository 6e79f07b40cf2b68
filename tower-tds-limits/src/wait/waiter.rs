use std::{
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Bounds, Denial, Limit, Line, Opens, WaitCause, clock, queue::Place, shared::Shared, sync::Arc,
    timer::Timer,
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

    /// Keeps the place, and lets later waiters pass until this one is polled again.
    ///
    /// # Errors
    /// If this waiter has no place yet, and as many others wait as its bounds allow.
    pub(crate) fn skip(&mut self, bounds: &Bounds) -> Result<(), Denial> {
        let mut state = self.shared.lock();
        let now = clock::now();
        if let Some(place) = self.place {
            let replaced = state.queue.skip(place);
            self.shared.end_event(state, now, replaced);
        } else {
            let place = state.place(self.line, bounds, now);
            state.enter(bounds.most_waiting)?;
            self.place = Some(place);
        }
        Ok(())
    }

    /// Returns the cause of the wait, and the time until the limit opens.
    pub(crate) fn wait(&self, now: Instant) -> (WaitCause, Option<Duration>) {
        let limit = &mut self.shared.lock().limit;
        let opens_at = limit.opens(self.line, now).at();
        let left = opens_at.map(|at| at.saturating_duration_since(now));
        (limit.cause(self.line, now), left)
    }
}

impl<L: Limit + Send + 'static> Waiter<L> {
    /// Passes if the limit is open and no other waiter is before this one; the limit then counts
    /// one more. Otherwise takes or keeps its place, and wants a turn.
    ///
    /// # Errors
    /// See [`Denial`]. After an error the waiter has no place.
    #[inline]
    pub(crate) fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        bounds: &Bounds,
    ) -> Poll<Result<L::Granted, Denial>> {
        let (shared, line) = (&self.shared, self.line);
        let mut state = shared.lock();
        let is_alone = self.place.is_none() && state.queue.is_free();
        if is_alone && state.limit.opens(line, now) == Opens::Now {
            return Poll::Ready(Ok(state.limit.admit(line, bounds, now)));
        }
        let place = self.place.unwrap_or_else(|| state.place(line, bounds, now));
        let is_next = !is_alone && state.queue.is_next(place);
        if is_next && state.limit.opens(line, now) == Opens::Now {
            let passed = if state.is_late(place, bounds, now) {
                Err(Denial::Late)
            } else {
                Ok(state.limit.admit(line, bounds, now))
            };
            let place = self.place.take();
            let replaced = place.and_then(|place| state.queue.pass(place));
            shared.end_event(state, now, replaced);
            return Poll::Ready(passed);
        }
        if self.place.is_none() {
            state.enter(bounds.most_waiting)?;
            self.place = Some(place);
        }
        let replaced = state.queue.want(place, cx.waker().clone());
        let wants_timer = !state.timer.is_running;
        shared.end_event(state, now, replaced);
        if wants_timer {
            Timer::spawn(shared);
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
