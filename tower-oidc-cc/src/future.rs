//! The future of a call.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use crate::{
    Challenge, Error, Judge, Judgement, Rejection, TokenError,
    source::{Outcome, Sent, Wait},
    state::Complaint,
};

pin_project! {
    /// Resolves to the response of the service below, or to the reason why nothing was sent.
    ///
    /// The answer to a call whose token was refused is held until the successor of that token is
    /// there, or cannot be had, or the [judge](Judge::may_hold) holds it no longer. A caller that
    /// sends the request again then has another token. No other call waits.
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
            // `None` once the call is answered.
            sent: Option<(Sent, J)>,
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
    pub(crate) fn sent(inner: F, sent: Sent, judge: J) -> Self {
        Self {
            state: State::Sent {
                inner,
                sent: Some((sent, judge)),
            },
        }
    }

    pub(crate) fn refused(error: TokenError) -> Self {
        Self {
            state: State::Refused { error },
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
        let mut this = self.project();
        match this.state.as_mut().project() {
            // ## Sent => (Held | done)
            StateProj::Sent { inner, sent } => {
                // Judged where it lies, since the way of nearly all outcomes is to be moved once.
                let polled = inner.poll(cx);
                let Poll::Ready(outcome) = &polled else {
                    return Poll::Pending;
                };
                let Some((sent, judge)) = sent.take() else {
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
                let held = refuse(outcome, judge, judgement, sent);
                this.state.set(State::Held { held: Some(held) });
                poll_held(this.state, cx)
            }
            StateProj::Held { .. } => poll_held(this.state, cx),
            // ## Refused => done
            StateProj::Refused { error } => Poll::Ready(Err(Error::Token(error.clone()))),
        }
    }
}

/// Records what the answer says against the token.
fn refuse<O, J>(outcome: O, judge: J, judgement: Judgement, sent: Sent) -> Box<Held<O, J>> {
    let answer = match judgement {
        Judgement::DeadToken => sent.complain(Complaint::Dead),
        Judgement::Unexplained => sent.complain(|_| Complaint::Unexplained),
        Judgement::MissingRole | Judgement::NoHeader | Judgement::Accepted | Judgement::Nothing => {
            Outcome::Kept
        }
    };
    Box::new(Held {
        outcome,
        judge,
        judgement,
        wait: match answer {
            Outcome::Replacing(wait) => wait,
            Outcome::Superseded => Wait::Over,
            Outcome::Kept => Wait::Idle,
        },
        sent,
    })
}

/// ## Held => done
fn poll_held<F, J, Res, E>(
    mut state: Pin<&mut State<F, J>>,
    cx: &mut Context<'_>,
) -> Poll<Result<Res, Error<E>>>
where
    F: Future<Output = Result<Res, E>>,
    J: Judge<Res, E>,
{
    let StateProj::Held { held: slot } = state.as_mut().project() else {
        return Poll::Pending;
    };
    // It is taken here alone, and this state ends here.
    let Some(mut held) = slot.take() else {
        return Poll::Pending;
    };
    let replaced = match held.sent.poll_successor(&mut held.wait, cx) {
        Poll::Ready(replaced) => replaced,
        Poll::Pending if held.judge.may_hold() => {
            *slot = Some(held);
            return Poll::Pending;
        }
        Poll::Pending => false,
    };
    let Held {
        mut outcome,
        judge,
        judgement,
        sent,
        ..
    } = *held;
    let rejection = Rejection::new(judgement, replaced);
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
