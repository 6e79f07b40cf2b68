//! One caller's wait for a token.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::sync::oneshot;

use super::{
    Tokens,
    shared::{Answer, Entry},
};
use crate::{TokenError, error::token::Kind};

/// A wait that can be polled from `poll_ready`: it is `Unpin`, and stores no future of ours.
#[derive(Debug, Default)]
pub(crate) enum Wait {
    #[default]
    Idle,
    Waiting(oneshot::Receiver<Answer>),
}

// === impl Wait ===

impl Wait {
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
                    Entry::Waiting(receiver) => *self = Self::Waiting(receiver),
                },
                Self::Waiting(_) => {}
            }
            // ## Waiting => (done | Idle)
            if let Self::Waiting(receiver) = self {
                let answer = ready!(Pin::new(receiver).poll(cx));
                *self = Self::Idle;
                if let Ok(answer) = answer {
                    return Poll::Ready(answer);
                }
            }
        }
        Poll::Ready(Err(TokenError::new(Kind::Vanished)))
    }
}
