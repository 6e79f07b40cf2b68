//! One caller's wait for a token.

use std::{
    cell::Cell,
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    shared::{Answer, Entry, Shared},
    sync::{Patience, oneshot},
};
use crate::{TokenError, error::token::Kind};

/// A wait that can be polled from `poll_ready`: it is `Unpin`. The box is on the cold path.
#[derive(Debug, Default)]
pub(crate) enum Wait {
    #[default]
    Idle,
    Waiting(Box<Waiting>),
    /// There is a successor.
    Over,
}

#[derive(Debug)]
pub(crate) struct Waiting {
    answer: oneshot::Receiver<Answer>,
    since: Instant,
    /// Ends a wait for a task whose runtime is kept and not driven.
    patience: Patience,
}

// === impl Wait ===

impl Wait {
    /// A wait for this answer.
    pub(super) fn of(shared: &Shared, answer: oneshot::Receiver<Answer>) -> Self {
        Self::Waiting(Box::new(Waiting::new(shared, answer)))
    }

    /// Resolves when there is a token, or when the request that was waited for has failed and the
    /// endpoint is left alone for it.
    pub(super) fn poll(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Poll<Answer> {
        // The second lap asks anew: a task can vanish with its runtime, and then this caller's has
        // the next one; and an answer may be of long ago, since a kept service is polled whenever
        // its owner likes.
        let mut last = None;
        for _ in 0..2 {
            let mut waiting = match mem::take(self) {
                // ## Idle => (Waiting | done)
                Self::Idle | Self::Over => match shared.enter() {
                    Entry::Fresh => return Poll::Ready(Ok(())),
                    Entry::Refused(error) => return Poll::Ready(Err(error)),
                    Entry::Waiting(answer) => Box::new(Waiting::new(shared, answer)),
                },
                Self::Waiting(waiting) => waiting,
            };
            // ## Waiting => (done | Idle)
            match waiting.poll(cx) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(answer)) => last = answer,
                Poll::Pending => {
                    *self = Self::Waiting(waiting);
                    return Poll::Pending;
                }
            }
        }
        // If two tasks vanish in the same breath, this runtime is on its way down.
        Poll::Ready(last.unwrap_or_else(|| Err(TokenError::new(Kind::Vanished))))
    }

    /// Resolves to whether there is a successor of the token of this number.
    pub(super) fn poll_successor(
        &mut self,
        shared: &Shared,
        generation: u64,
        cx: &mut Context<'_>,
    ) -> Poll<bool> {
        match self {
            Self::Idle => Poll::Ready(false),
            Self::Over => Poll::Ready(true),
            Self::Waiting(waiting) => waiting.poll(cx).map(|_| shared.supersedes(generation)),
        }
    }
}

// === impl Waiting ===

impl Waiting {
    fn new(shared: &Shared, answer: oneshot::Receiver<Answer>) -> Self {
        let since = shared.now().steady;
        Self {
            answer,
            since,
            patience: Patience::new(since.checked_add(shared.settings.patience)),
        }
    }

    /// Resolves to the answer, or to `None` if the task is gone. An error means that no task
    /// answers.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Answer>, TokenError>> {
        if let Poll::Ready(answer) = Pin::new(&mut self.answer).poll(cx) {
            return Poll::Ready(Ok(answer.ok()));
        }
        self.patience
            .poll(cx)
            .map(|()| Err(TokenError::new(Kind::Vanished)))
    }
}

/// However it ends: by a token, by an error, or because its caller has gone.
impl Drop for Waiting {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        let add = |told: &Cell<Duration>| told.set(told.get().saturating_add(waited));
        // At the end of a thread nobody listens.
        WAITED.try_with(add).ok();
    }
}

/// Does something, and gives what the waits have taken that came to their end by it.
pub(super) fn heard<T>(does: impl FnOnce() -> T) -> (T, Duration) {
    let swap = |told| WAITED.try_with(|before| before.replace(told));
    let outer = swap(Duration::ZERO).unwrap_or_default();
    let done = does();
    let heard = swap(outer).unwrap_or_default();
    (done, heard)
}

thread_local! {
    /// What the waits of this thread have taken, since somebody began to listen.
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}
