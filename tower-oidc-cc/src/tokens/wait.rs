//! One caller's wait for a token.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::{
    Tokens,
    entry::{Answer, Entry},
    sync::{Handle, Sleep, oneshot, sleep},
};
use crate::{TokenError, error::token::Kind};

/// A wait that can be polled from `poll_ready`: it is `Unpin`. The box is on the cold path.
#[derive(Debug, Default)]
pub(crate) enum Wait {
    #[default]
    Idle,
    Waiting {
        answer: oneshot::Receiver<Answer>,
        /// The driver that was asked.
        shift: u64,
        /// How long it is waited for; for ever where there is no clock to go by.
        patience: Option<Pin<Box<Sleep>>>,
    },
}

// === impl Wait ===

impl Wait {
    /// Ends a wait that is no longer needed: what it would have heard is old by the next one.
    #[inline]
    pub(crate) fn rest(&mut self) {
        if let Self::Waiting { .. } = self {
            *self = Self::Idle;
        }
    }

    /// Resolves when there is a token, or when the flight that was waited for has failed.
    pub(crate) fn poll(
        &mut self,
        tokens: &Tokens,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), TokenError>> {
        // A driver can vanish with its runtime, and then the second lap asks anew, on the runtime
        // of this caller. If that vanishes in the same breath, this runtime is on its way down.
        for _ in 0..2 {
            match self {
                // ## Idle => (Waiting | done)
                Self::Idle => match tokens.shared.enter() {
                    Entry::Fresh => return Poll::Ready(Ok(())),
                    Entry::Refused(error) => return Poll::Ready(Err(error)),
                    Entry::Waiting(answer, shift) => {
                        let limit = tokens.shared.settings.patience();
                        let patience = Handle::try_current().map(|_| Box::pin(sleep(limit)));
                        *self = Self::Waiting {
                            answer,
                            shift,
                            patience: patience.ok(),
                        };
                    }
                },
                Self::Waiting { .. } => {}
            }
            // ## Waiting => (done | Idle)
            if let Self::Waiting {
                answer,
                shift,
                patience,
            } = self
            {
                match Pin::new(answer).poll(cx) {
                    Poll::Ready(Ok(answer)) => {
                        *self = Self::Idle;
                        return Poll::Ready(answer);
                    }
                    Poll::Ready(Err(_)) => {}
                    Poll::Pending => match patience.as_mut().map(|p| p.as_mut().poll(cx)) {
                        // The driver's runtime is kept, and nobody drives it.
                        Some(Poll::Ready(())) => tokens.shared.relieve(*shift),
                        Some(Poll::Pending) | None => return Poll::Pending,
                    },
                }
                *self = Self::Idle;
            }
        }
        Poll::Ready(Err(TokenError::new(Kind::Vanished)))
    }
}
