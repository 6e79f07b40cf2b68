//! One who waits at a gate.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

use super::{Admit, Earliest, Gate, Line, shared::Pass, waiters::Key};
use crate::{LimitError, clock};

/// Waits at a gate, as often as asked, one wait at a time.
///
/// Dropping it gives up the place; a grant is never in flight, because it is only made while the
/// waiter is polled.
pub(crate) struct Waiter<A: Admit> {
    gate: Arc<Gate<A>>,
    line: Line,
    /// The place in the queue while waiting.
    place: Option<Key>,
    max_wait: Option<Duration>,
    /// When the present wait began.
    since: Option<Instant>,
    /// Made at the first wait that needs it and kept for the next.
    timer: Option<Pin<Box<Sleep>>>,
}

// === impl Waiter ===

impl<A: Admit> Waiter<A> {
    pub(crate) fn new(gate: Arc<Gate<A>>, line: Line, max_wait: Option<Duration>) -> Self {
        Self {
            gate,
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

    /// Waits until the gate has counted one more; gives what is remembered of it.
    ///
    /// # Errors
    /// When the longest wait has passed; the place is given up.
    #[inline]
    pub(crate) fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<Result<A::Grant, LimitError>> {
        match self.gate.pass(&mut self.place, self.line, cx.waker()) {
            Pass::Granted(grant) => {
                self.since = None;
                Poll::Ready(Ok(grant))
            }
            Pass::Wait(told) => self.poll_wait(told, cx),
        }
    }

    fn poll_wait(
        &mut self,
        mut told: Earliest,
        cx: &mut Context<'_>,
    ) -> Poll<Result<A::Grant, LimitError>> {
        loop {
            if let Some(waited) = self.waited_too_long() {
                self.give_up();
                return Poll::Ready(Err(LimitError::timed_out(waited)));
            }
            let Some(look_again) = self.look_again(told) else {
                return Poll::Pending;
            };
            ready!(self.poll_timer(look_again, cx));
            told = match self.gate.pass(&mut self.place, self.line, cx.waker()) {
                Pass::Granted(grant) => {
                    self.since = None;
                    return Poll::Ready(Ok(grant));
                }
                Pass::Wait(told) => told,
            };
        }
    }

    /// The earliest instant at which a look is worth while without being woken.
    fn look_again(&mut self, told: Earliest) -> Option<Instant> {
        let bound = self.max_wait.and_then(|wait| {
            let since = *self.since.get_or_insert_with(clock::now);
            since.checked_add(wait)
        });
        match (told, bound) {
            (Earliest::At(at), Some(bound)) => Some(at.min(bound)),
            (Earliest::At(at), None) => Some(at),
            (Earliest::Now | Earliest::OnReturn, bound) => bound,
        }
    }

    fn waited_too_long(&self) -> Option<Duration> {
        let waited = clock::now().saturating_duration_since(self.since?);
        (waited >= self.max_wait?).then_some(waited)
    }

    /// Gives up the place, if there is one. Gives since when it has waited, where that is bounded.
    pub(crate) fn give_up(&mut self) -> Option<Instant> {
        if let Some(key) = self.place.take() {
            self.gate.leave(key, self.line);
        }
        self.since.take()
    }

    fn poll_timer(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx)
    }
}

impl<A: Admit> Drop for Waiter<A> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl<A: Admit> fmt::Debug for Waiter<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter")
            .field("waiting", &self.place.is_some())
            .finish_non_exhaustive()
    }
}
