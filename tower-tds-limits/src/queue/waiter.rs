//! One who waits in a queue.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

use super::{Limit, Line, Queue, alarm::Alarm, rows::Key};
use crate::{LimitError, clock};

/// Waits in a queue, as often as asked.
///
/// Dropping it gives up the place; a grant is never in flight, because it is only made while the
/// waiter is polled.
#[derive(Debug)]
pub(crate) struct Waiter<L: Limit> {
    queue: Arc<Queue<L>>,
    line: Line,
    /// The place in the queue while waiting.
    place: Option<Key>,
}

/// How long one wait may last, in however many queues.
#[derive(Debug)]
pub(crate) struct Bound {
    longest: Option<Duration>,
    /// When the present wait began.
    since: Option<Instant>,
    /// For its end, and made anew by each poll: the runtime of the one before may be gone.
    timer: Option<Pin<Box<Sleep>>>,
}

// === impl Waiter ===

impl<L: Limit> Waiter<L> {
    pub(crate) fn new(queue: Arc<Queue<L>>, line: Line) -> Self {
        Self {
            queue,
            line,
            place: None,
        }
    }

    pub(super) fn queue(&self) -> &Arc<Queue<L>> {
        &self.queue
    }

    pub(super) fn line(&self) -> Line {
        self.line
    }

    /// Gives up the place, if there is one. Says whether nobody was before it.
    pub(super) fn give_up(&mut self) -> bool {
        let place = self.place.take();
        place.is_some_and(|key| self.queue.leave(key).was_first)
    }
}

impl<L: Limit + Send + 'static> Waiter<L> {
    /// Waits until the limit has counted one more; gives what is remembered of it.
    ///
    /// # Errors
    /// When the wait has reached its bound; the place is given up.
    #[inline]
    pub(crate) fn poll_pass(
        &mut self,
        bound: &mut Bound,
        cx: &mut Context<'_>,
    ) -> Poll<Result<L::Grant, LimitError>> {
        match self.queue.pass(&mut self.place, self.line, cx.waker()) {
            Ok(grant) => Poll::Ready(Ok(grant)),
            Err(key) => match bound.reached(cx) {
                Some(waited) => {
                    self.place = None;
                    let left = self.queue.leave(key);
                    Poll::Ready(Err(if bound.longest == Some(Duration::ZERO) {
                        LimitError::rejected(left.cause, left.opens)
                    } else {
                        LimitError::timed_out(left.cause, waited)
                    }))
                }
                None => {
                    Alarm::ensure(&self.queue);
                    Poll::Pending
                }
            },
        }
    }
}

impl<L: Limit> Drop for Waiter<L> {
    fn drop(&mut self) {
        self.give_up();
    }
}

// === impl Bound ===

impl Bound {
    pub(crate) fn new(longest: Option<Duration>) -> Self {
        Self {
            longest,
            since: None,
            timer: None,
        }
    }

    pub(crate) fn longest(&self) -> Option<Duration> {
        self.longest
    }

    /// The wait is over, and the next one is another.
    #[inline]
    pub(super) fn end(&mut self) {
        if self.since.is_some() {
            *self = Self::new(self.longest);
        }
    }

    /// How long the wait is, if that is as long as it may be; otherwise it wakes whoever polls then.
    #[cold]
    fn reached(&mut self, cx: &mut Context<'_>) -> Option<Duration> {
        let longest = self.longest?;
        let now = clock::now();
        let since = *self.since.get_or_insert(now);
        let waited = now.saturating_duration_since(since);
        if waited >= longest {
            return Some(waited);
        }
        // A bound that no clock reaches is none.
        let timer = self
            .timer
            .insert(Box::pin(sleep_until(since.checked_add(longest)?)));
        // It is not over yet.
        let _pending = timer.as_mut().poll(cx);
        None
    }
}
