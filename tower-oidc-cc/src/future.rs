//! The future of a call.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

pub use crate::replay::future::ReplayFuture;
use crate::{Challenge, Error, Judge, Judgement, TokenError, tokens::Desk};

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
            // None if the request went as it was, with no token.
            token: Option<(Arc<Desk>, u64)>,
            judge: J,
            replaced: bool,
        },
        Refused {
            error: TokenError,
        },
    }
}

// === impl ResponseFuture ===

impl<F, J> ResponseFuture<F, J> {
    #[inline]
    pub(crate) fn sent(inner: F, token: Option<(Arc<Desk>, u64)>, judge: J) -> Self {
        Self {
            state: State::Sent {
                inner,
                token,
                judge,
                replaced: false,
            },
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

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            // ## Sent => done
            StateProj::Sent {
                inner,
                token,
                judge,
                replaced,
            } => {
                // Judged where it lies, since the way of nearly all outcomes is to be moved once.
                let polled = inner.poll(cx);
                let Poll::Ready(outcome) = &polled else {
                    return Poll::Pending;
                };
                let judgement = match token {
                    Some(_) => judge.judge(outcome.as_ref()),
                    None => Judgement::Other,
                };
                if judgement == Judgement::Other {
                    return polled.map_err(Error::Inner);
                }
                let mut outcome = ready!(polled);
                if let Some((desk, generation)) = token {
                    let finding = desk.find(judgement, *generation);
                    *replaced = judgement == Judgement::DeadToken && finding.is_replaced();
                    judge.annotate(outcome.as_mut(), finding);
                }
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
            State::Sent { .. } => "sent",
            State::Refused { .. } => "refused",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .finish()
    }
}
