//! One who waits in a queue, and a `Service`'s readiness behind it: the inner service first, then a permit.

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

use super::{Limit, Line, Queue, alarm::Alarm, rows::Key};
use crate::{LimitError, clock};

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
        &self.waiter.queue
    }

    pub(crate) fn bound(&mut self) -> &mut Bound {
        &mut self.bound
    }

    /// That of a call whose permit is over, and that has waited `since` then: its inner service is ready.
    pub(crate) fn late(&self, since: Instant) -> Self {
        let line = self.waiter.line.late();
        let mut late = Self::new(self.queue(), line, self.bound.longest);
        late.stage = Stage::InnerReady;
        late.bound.since = Some(since);
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
        ready!(self.poll_inner(cx, inner))?;
        self.poll_permit(cx).map(Ok)
    }

    /// The first half of it.
    ///
    /// # Errors
    /// Only the inner service's own.
    #[inline]
    pub(crate) fn poll_inner<E>(
        &mut self,
        cx: &mut Context<'_>,
        inner: impl FnOnce(&mut Context<'_>) -> Poll<Result<(), E>>,
    ) -> Poll<Result<(), E>> {
        if let Stage::Unready = self.stage {
            ready!(inner(cx))?;
            self.stage = Stage::InnerReady;
        }
        Poll::Ready(Ok(()))
    }

    /// The second half.
    #[inline]
    pub(crate) fn poll_permit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Stage::InnerReady = self.stage {
            self.stage = match ready!(self.waiter.poll_pass(&mut self.bound, cx)) {
                Ok(grant) => Stage::Granted(grant),
                Err(refused) => Stage::Refused(refused),
            };
            self.bound.end();
        }
        Poll::Ready(())
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

    /// Ends the wait with `error` for the response future.
    pub(crate) fn refuse(&mut self, error: LimitError) {
        self.bound.end();
        self.stage = Stage::Refused(error);
        self.waiter.give_up();
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

/// Another caller's in the same queue: no permit, no place in the queue.
impl<L: Limit + Send + 'static> Clone for Readiness<L> {
    fn clone(&self) -> Self {
        Self::new(self.queue(), self.waiter.line, self.bound.longest)
    }
}

impl<L: Limit + Send + 'static> Drop for Readiness<L> {
    fn drop(&mut self) {
        self.step_back();
    }
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

    /// Gives up the place, if there is one.
    fn give_up(&mut self) {
        if let Some(key) = self.place.take() {
            self.queue.leave(key);
        }
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
