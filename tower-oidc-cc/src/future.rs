//! The future of a call.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

pub use crate::replay::future::ReplayFuture;
use crate::{Challenge, Error, Judge, Judgement, TokenError, Tokens};

pin_project! {
    /// Resolves to the response of the service below, or to the reason why nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the call below, and with it only what the answer would have said about
    /// the token.
    pub struct ResponseFuture<F, J = Challenge> {
        #[pin]
        state: State<F, J>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, J> {
        Sent {
            #[pin]
            inner: F,
            tokens: Tokens,
            generation: u64,
            judge: J,
            replaced: bool,
        },
        Passed {
            #[pin]
            inner: F,
        },
        Refused {
            error: TokenError,
        },
    }
}

// === impl ResponseFuture ===

impl<F, J> ResponseFuture<F, J> {
    pub(crate) fn sent(inner: F, tokens: Tokens, generation: u64, judge: J) -> Self {
        Self {
            state: State::Sent {
                inner,
                tokens,
                generation,
                judge,
                replaced: false,
            },
        }
    }

    pub(crate) fn passed(inner: F) -> Self {
        Self {
            state: State::Passed { inner },
        }
    }

    pub(crate) fn refused(error: TokenError) -> Self {
        Self {
            state: State::Refused { error },
        }
    }

    /// Whether the token was refused, or lost before it was sent, and there is another or will be.
    pub(crate) fn is_replaced(&self) -> bool {
        match &self.state {
            State::Sent { replaced, .. } => *replaced,
            State::Passed { .. } => false,
            State::Refused { error } => error.is_expired(),
        }
    }
}

impl<F, J, Res, E> Future for ResponseFuture<F, J>
where
    F: Future<Output = Result<Res, E>>,
    J: Judge<Res, E>,
{
    type Output = Result<Res, Error<E>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            // ## Sent => done
            StateProj::Sent {
                inner,
                tokens,
                generation,
                judge,
                replaced,
            } => {
                let mut outcome = ready!(inner.poll(cx));
                let judgement = judge.judge(outcome.as_ref());
                if judgement != Judgement::Other {
                    let finding = tokens.find(judgement, *generation);
                    *replaced = judgement == Judgement::DeadToken && finding.is_replaced();
                    judge.annotate(outcome.as_mut(), finding);
                }
                Poll::Ready(outcome.map_err(Error::Inner))
            }
            // ## Passed => done
            StateProj::Passed { inner } => {
                let outcome = ready!(inner.poll(cx));
                Poll::Ready(outcome.map_err(Error::Inner))
            }
            // ## Refused => done
            StateProj::Refused { error } => Poll::Ready(Err(Error::Token(error.clone()))),
        }
    }
}

impl<F, J> fmt::Debug for ResponseFuture<F, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Sent { .. } | State::Passed { .. } => "sent",
            State::Refused { .. } => "refused",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .finish()
    }
}
