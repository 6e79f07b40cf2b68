//! The future of a call.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

pub use crate::replay::ReplayFuture;
use crate::{
    Challenge, Error, Judge, Judgement, Rejection, TokenError,
    source::{Outcome, Sent, Wait},
    state::Complaint,
};

pin_project! {
    /// Resolves to the response of the service below, or to the reason why nothing was sent.
    ///
    /// The answer to a call whose token was refused is held until the successor of that token is
    /// there, or cannot be had, or the [judge](Judge::may_hold) holds it no longer: whoever makes the
    /// call again then has another. No other call waits.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the call below, and with it only what the answer would have said about
    /// the token.
    pub struct ResponseFuture<F, J = Challenge>
    where
        F: Future,
    {
        #[pin]
        state: State<F, J>,
        replaced: bool,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, J>
    where
        F: Future,
    {
        Sent {
            #[pin]
            inner: F,
            // None if the request went as it was, with no token.
            sent: Option<Sent>,
            judge: J,
        },
        Held {
            held: Option<Box<Held<F::Output, J>>>,
        },
        Refused {
            error: TokenError,
        },
    }
}

/// A refused call, whose answer waits for a successor of its token.
struct Held<O, J> {
    outcome: O,
    judge: J,
    judgement: Judgement,
    wait: Wait,
    sent: Sent,
}

// === impl ResponseFuture ===

impl<F: Future, J> ResponseFuture<F, J> {
    #[inline]
    pub(crate) fn sent(inner: F, sent: Option<Sent>, judge: J) -> Self {
        Self {
            state: State::Sent { inner, sent, judge },
            replaced: false,
        }
    }

    pub(crate) fn refused(error: TokenError) -> Self {
        Self {
            replaced: error.is_expired(),
            state: State::Refused { error },
        }
    }

    /// Whether the token was refused, or lost before it was sent, and there is another or will be.
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced
    }
}

impl<F, J, Res, E> Future for ResponseFuture<F, J>
where
    F: Future<Output = Result<Res, E>>,
    J: Judge<Res, E> + Clone,
{
    type Output = Result<Res, Error<E>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        match this.state.as_mut().project() {
            // ## Sent => (Held | done)
            StateProj::Sent { inner, sent, judge } => {
                // Judged where it lies, since the way of nearly all outcomes is to be moved once.
                let polled = inner.poll(cx);
                let Poll::Ready(outcome) = &polled else {
                    return Poll::Pending;
                };
                let Some(sent) = *sent else {
                    return polled.map_err(Error::Inner);
                };
                let judgement = judge.judge(outcome.as_ref());
                if judgement == Judgement::Accepted {
                    sent.accept();
                }
                if matches!(judgement, Judgement::Accepted | Judgement::Nothing) {
                    return polled.map_err(Error::Inner);
                }
                let outcome = ready!(polled);
                let held = refuse(outcome, judge.clone(), judgement, sent);
                this.state.set(State::Held { held: Some(held) });
                poll_held(this.state, this.replaced, cx)
            }
            StateProj::Held { .. } => poll_held(this.state, this.replaced, cx),
            // ## Refused => done
            StateProj::Refused { error } => Poll::Ready(Err(Error::Token(error.clone()))),
        }
    }
}

/// Tells what the answer says against the token, and how that is answered.
#[cold]
fn refuse<O, J>(outcome: O, judge: J, judgement: Judgement, sent: Sent) -> Box<Held<O, J>> {
    let answer = match judgement {
        Judgement::DeadToken => sent.complain(Complaint::Dead),
        Judgement::Unexplained => sent.complain(|_| Complaint::Unexplained),
        Judgement::MissingRole => sent.complain(|_| Complaint::Role),
        Judgement::NoHeader | Judgement::Accepted | Judgement::Nothing => None,
    };
    Box::new(Held {
        outcome,
        judge,
        judgement,
        wait: match answer {
            Some(Outcome::Replacing(wait)) => wait,
            Some(Outcome::Superseded) => Wait::over(),
            Some(Outcome::Kept) | None => Wait::default(),
        },
        sent,
    })
}

/// ## Held => done
#[cold]
fn poll_held<F, J, Res, E>(
    mut state: Pin<&mut State<F, J>>,
    replaced: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<Result<Res, Error<E>>>
where
    F: Future<Output = Result<Res, E>>,
    J: Judge<Res, E>,
{
    let StateProj::Held { held } = state.as_mut().project() else {
        return Poll::Pending;
    };
    if let Some(held) = held {
        *replaced = match held.wait.poll_held(cx) {
            Poll::Ready(replaced) => replaced,
            Poll::Pending if held.judge.may_hold() => return Poll::Pending,
            Poll::Pending => false,
        };
    }
    let Some(held) = held.take() else {
        // It is taken here alone, and this state ends here.
        return Poll::Pending;
    };
    let Held {
        mut outcome,
        judge,
        judgement,
        sent,
        ..
    } = *held;
    let rejection = Rejection::new(judgement, *replaced);
    #[cfg(feature = "claims")]
    let rejection = if judgement == Judgement::MissingRole {
        let header = sent.header();
        rejection.with_realm_roles(header.as_ref().and_then(crate::claims::realm_roles))
    } else {
        rejection
    };
    tracing::debug!(
        generation = sent.generation,
        ?rejection,
        "the service refused a call"
    );
    judge.annotate(outcome.as_mut(), rejection);
    Poll::Ready(outcome.map_err(Error::Inner))
}

impl<F: Future, J> fmt::Debug for ResponseFuture<F, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Sent { .. } => "sent",
            State::Held { .. } => "held",
            State::Refused { .. } => "refused",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .finish()
    }
}
