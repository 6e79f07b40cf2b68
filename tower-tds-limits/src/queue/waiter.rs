//! One who waits in a queue.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

use super::{Limit, Line, Queue, alarm::Alarm, rows::Key, shared::Pass};
use crate::{LimitError, WaitCause, clock};

/// Waits in a queue, as often as asked, one wait at a time.
///
/// Dropping it gives up the place; a grant is never in flight, because it is only made while the
/// waiter is polled.
pub(crate) struct Waiter<L: Limit> {
    queue: Arc<Queue<L>>,
    line: Line,
    /// The place in the queue while waiting.
    place: Option<Key>,
    max_wait: Option<Duration>,
    /// When the present wait began.
    since: Option<Instant>,
    /// For the end of a bounded wait, and made anew by each poll: the runtime of the one before may
    /// be gone.
    timer: Option<Pin<Box<Sleep>>>,
}

// === impl Waiter ===

impl<L: Limit> Waiter<L> {
    pub(crate) fn new(queue: Arc<Queue<L>>, line: Line, max_wait: Option<Duration>) -> Self {
        Self {
            queue,
            line,
            place: None,
            max_wait,
            since: None,
            timer: None,
        }
    }

    pub(super) fn max_wait(&self) -> Option<Duration> {
        self.max_wait
    }

    /// The present wait began earlier than here.
    pub(crate) fn waiting_since(&mut self, since: Instant) {
        self.since = Some(since);
    }

    /// Gives up the place, if there is one. Gives since when it has waited, where that is bounded.
    pub(crate) fn give_up(&mut self) -> Option<Instant> {
        self.timer = None;
        if let Some(key) = self.place.take() {
            self.queue.leave(key, self.line);
        }
        self.since.take()
    }
}

impl<L: Limit + Send + 'static> Waiter<L> {
    /// Waits until the limit has counted one more; gives what is remembered of it.
    ///
    /// # Errors
    /// When the longest wait has passed; the place is given up.
    #[inline]
    pub(crate) fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<Result<L::Grant, LimitError>> {
        match self.queue.pass(&mut self.place, self.line, cx.waker()) {
            Pass::Granted(grant) => {
                if self.since.is_some() {
                    self.since = None;
                    self.timer = None;
                }
                Poll::Ready(Ok(grant))
            }
            Pass::Wait => self.poll_wait(cx),
        }
    }

    #[cold]
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Result<L::Grant, LimitError>> {
        if let Some(bound) = self.max_wait {
            let now = clock::now();
            let since = *self.since.get_or_insert(now);
            let waited = now.saturating_duration_since(since);
            if waited >= bound {
                return Poll::Ready(Err(self.give_up_after(waited)));
            }
            // A bound that no clock reaches is none.
            if let Some(end) = since.checked_add(bound) {
                let timer = self.timer.insert(Box::pin(sleep_until(end)));
                // It is not over yet, and wakes whoever polls when it is.
                let _pending = timer.as_mut().poll(cx);
            }
        }
        Alarm::ensure(&self.queue);
        Poll::Pending
    }

    fn give_up_after(&mut self, waited: Duration) -> LimitError {
        self.since = None;
        self.timer = None;
        let left = self
            .place
            .take()
            .map(|key| self.queue.leave(key, self.line));
        let (cause, wait) = left.unwrap_or((WaitCause::InFlight, None));
        if self.max_wait == Some(Duration::ZERO) {
            LimitError::rejected(cause, wait)
        } else {
            LimitError::timed_out(cause, waited)
        }
    }
}

impl<L: Limit> Drop for Waiter<L> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl<L: Limit> fmt::Debug for Waiter<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter")
            .field("waiting", &self.place.is_some())
            .finish_non_exhaustive()
    }
}
