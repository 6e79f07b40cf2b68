//! One caller's wait for a token.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::{
    TokenSource,
    entry::{Answer, Entry},
    shared::Shared,
    sync::{Patience, oneshot},
};
use crate::{Event, Outcome, TokenError, error::token::Kind, moment::Moment};

/// A wait that can be polled from `poll_ready`: it is `Unpin`. The box is on the cold path.
#[derive(Debug, Default)]
pub(crate) enum Wait {
    #[default]
    Idle,
    Waiting(Box<Waiting>),
}

#[derive(Debug)]
pub(crate) struct Waiting {
    answer: oneshot::Receiver<Answer>,
    /// The driver that was asked.
    shift: u64,
    /// How long it is waited for.
    patience: Patience,
    told: Told,
}

/// Tells of a wait when it is over, however it ends: most end in a drop, since the token is there
/// before those who wait for it are woken.
struct Told {
    shared: Arc<Shared>,
    since: Moment,
    outcome: Outcome,
}

// === impl Wait ===

impl Wait {
    /// Ends a wait that is no longer needed: what it would have heard is old by the next one.
    #[inline]
    pub(crate) fn rest(&mut self) {
        if let Self::Waiting(waiting) = self {
            waiting.told.outcome = Outcome::Token;
            *self = Self::Idle;
        }
    }

    /// Resolves when there is a token, or when the flight that was waited for has failed and the
    /// endpoint is left alone for it.
    pub(crate) fn poll(
        &mut self,
        tokens: &TokenSource,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), TokenError>> {
        let mut told = None;
        // The second lap asks anew: a driver can vanish with its runtime, and then this caller's has
        // the next one; and an answer may be of long ago, since a kept service is polled whenever
        // its owner likes.
        let mut last = None;
        for _ in 0..2 {
            let mut waiting = match mem::take(self) {
                // ## Idle => (Waiting | done)
                Self::Idle => match tokens.shared.enter() {
                    Entry::Fresh => return done(told, Ok(())),
                    Entry::Refused(error) => return done(told, Err(error)),
                    Entry::Waiting(answer, shift) => {
                        let now = tokens.shared.now().steady;
                        let limit = tokens.shared.settings.patience();
                        Box::new(Waiting {
                            answer,
                            shift,
                            patience: Patience::new(now.checked_add(limit)),
                            told: told.take().unwrap_or_else(|| Told::new(&tokens.shared)),
                        })
                    }
                },
                Self::Waiting(waiting) => waiting,
            };
            // ## Waiting => (done | Idle)
            match Pin::new(&mut waiting.answer).poll(cx) {
                Poll::Ready(Ok(answer)) => last = Some(answer),
                Poll::Ready(Err(_)) => {}
                Poll::Pending => match waiting.patience.poll(cx) {
                    // The driver's runtime is kept, and nobody drives it.
                    Poll::Ready(()) => tokens.shared.relieve(waiting.shift),
                    Poll::Pending => {
                        *self = Self::Waiting(waiting);
                        return Poll::Pending;
                    }
                },
            }
            told = Some(waiting.told);
        }
        // If two drivers vanish in the same breath, this runtime is on its way down.
        done(
            told,
            last.unwrap_or_else(|| Err(TokenError::new(Kind::Vanished))),
        )
    }
}

// === impl Told ===

impl Told {
    fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            since: shared.now(),
            outcome: Outcome::Left,
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.shared.tell(&Event::Waited {
            took: self.since.age_at(self.shared.now()),
            outcome: self.outcome,
        });
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Told")
    }
}

fn done(told: Option<Told>, answer: Answer) -> Poll<Answer> {
    if let Some(mut told) = told {
        told.outcome = match answer {
            Ok(()) => Outcome::Token,
            Err(_) => Outcome::Failure,
        };
    }
    Poll::Ready(answer)
}
