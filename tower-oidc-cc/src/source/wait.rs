//! One caller's wait for a token.

use std::{
    cell::Cell,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    shared::{Answer, Awaited, BEAT, Entry, Shared},
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
    /// The task that was asked, and when.
    task: u64,
    since: Instant,
    /// Until the next look whether it is seen, and is still the one that works.
    patience: Patience,
    /// Whether it has kept silent for too long.
    is_silent: bool,
    /// For a successor of the token of this number, which was refused, and not for any token.
    held: Option<(Arc<Shared>, u64)>,
}

// === impl Wait ===

impl Wait {
    /// For the end of the request that brings a successor.
    pub(super) fn held(shared: Arc<Shared>, generation: u64, awaited: Awaited) -> Self {
        let mut waiting = Waiting::new(&shared, awaited);
        waiting.held = Some((shared, generation));
        Self::Waiting(Box::new(waiting))
    }

    /// For a successor that is there already.
    pub(crate) fn over() -> Self {
        Self::Over
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
                    Entry::Waiting(awaited) => Box::new(Waiting::new(shared, awaited)),
                },
                Self::Waiting(waiting) => waiting,
            };
            // ## Waiting => (done | Idle)
            match waiting.poll(shared, cx) {
                Poll::Ready(answer) => last = answer,
                Poll::Pending => {
                    *self = Self::Waiting(waiting);
                    return Poll::Pending;
                }
            }
        }
        // If two tasks vanish in the same breath, this runtime is on its way down.
        Poll::Ready(last.unwrap_or_else(|| Err(TokenError::new(Kind::Vanished))))
    }

    /// Resolves to whether there is a successor by now.
    pub(crate) fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let waiting = match self {
            Self::Idle => return Poll::Ready(false),
            Self::Over => return Poll::Ready(true),
            Self::Waiting(waiting) => waiting,
        };
        let Some((shared, generation)) = waiting.held.clone() else {
            return Poll::Ready(false);
        };
        let polled = waiting.poll(&shared, cx);
        polled.map(|_| shared.supersedes(generation))
    }
}

// === impl Waiting ===

impl Waiting {
    fn new(shared: &Shared, (answer, task): Awaited) -> Self {
        let since = shared.now().steady;
        Self {
            answer,
            task,
            since,
            patience: Patience::new(since.checked_add(BEAT)),
            is_silent: false,
            held: None,
        }
    }

    /// Resolves to the answer, or to `None` if the task is gone.
    fn poll(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Poll<Option<Answer>> {
        match Pin::new(&mut self.answer).poll(cx) {
            Poll::Ready(answer) => return Poll::Ready(answer.ok()),
            Poll::Pending => {}
        }
        while self.patience.poll(cx).is_ready() {
            // Another may have given it up before: whoever asked it hears of that nowhere else.
            let Some(until) = shared.silent_until(self.task, self.since) else {
                return Poll::Ready(None);
            };
            let now = shared.now().steady;
            let mut look = now.checked_add(BEAT);
            if Patience::lasts(now, until) {
                self.is_silent = false;
                look = look.min(Some(until));
            } else if mem::replace(&mut self.is_silent, true) {
                // Its runtime is kept, and nobody drives it.
                shared.relieve(self.task);
                return Poll::Ready(None);
            }
            // Or all of this process slept, and who wakes with it is seen in a moment.
            self.patience = Patience::new(look);
        }
        Poll::Pending
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
