use std::{
    sync::Arc,
    task::{Context, Poll},
};

use tokio::time::Instant;

use super::{
    Full, Limit, Line, Refusal,
    queue::Place,
    shared::{Passed, Shared},
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
    /// If this waiter has no place and `most_waiting` others wait.
    pub(crate) fn skip(&mut self, most_waiting: usize) -> Result<(), Full> {
        self.shared.skip(&mut self.place, self.line, most_waiting)
    }

    /// The cause of the wait, and the time until the limit opens.
    pub(crate) fn wait(&self, now: Instant) -> Refusal {
        self.shared.wait(self.line, now)
    }

    /// Gives up the place.
    pub(crate) fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            self.shared.leave(place);
        }
    }
}

impl<L: Limit + Send + 'static> Waiter<L> {
    /// Waits until this waiter may pass.
    ///
    /// # Errors
    /// If this waiter has no place and `most_waiting` others wait.
    #[inline]
    pub(crate) fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        most_waiting: usize,
    ) -> Poll<Result<L::Grant, Full>> {
        let place = &mut self.place;
        let shared = &self.shared;
        match shared.pass(place, self.line, most_waiting, now, cx.waker()) {
            Ok(Passed::Granted(grant)) => Poll::Ready(Ok(grant)),
            Ok(Passed::Waits { wants_timer }) => {
                if wants_timer {
                    Timer::spawn(shared);
                }
                Poll::Pending
            }
            Err(full) => Poll::Ready(Err(full)),
        }
    }
}

impl<L: Limit> Drop for Waiter<L> {
    fn drop(&mut self) {
        self.leave();
    }
}
