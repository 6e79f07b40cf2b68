//! The future of a call.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::Response;
use pin_project_lite::pin_project;
use tokio::time::{Instant, timeout_at};

use crate::{
    error::{Error, TokenError},
    judge::{Challenge, Judge, Judgement, Refresh, Rejection},
    source::TokenSource,
};

pin_project! {
    /// Resolves to the response of the inner service, or to an error. After [`Error::Token`]
    /// nothing was sent.
    ///
    /// A refused call is held while its token is being replaced: until the token request has a result,
    /// for ten seconds at most, and not beyond its deadline
    /// ([`deadline_from`](crate::BearerAuthLayer::deadline_from)). A resend then has the new token. An
    /// outer timeout that is shorter ends the call as a timeout.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the call of the inner service. A token request continues.
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
            sent: Sent,
            judge: J,
        },
        // `None` once the call has ended.
        Held {
            held: Option<Box<Held<F::Output>>>,
        },
        Failed {
            error: TokenError,
        },
    }
}

/// The source, the token and the deadline of a sent call.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) source: TokenSource,
    /// The number of the token that was sent.
    pub(crate) generation: u64,
    pub(crate) deadline: Option<Instant>,
}

/// A refused call whose token is being replaced.
struct Held<O> {
    outcome: O,
    sent: Sent,
    /// Until the flight or the time for it has ended.
    wait: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
}

// === impl ResponseFuture ===

impl<F: Future, J> ResponseFuture<F, J> {
    pub(crate) fn sent(inner: F, sent: Sent, judge: J) -> Self {
        Self {
            state: State::Sent { inner, sent, judge },
        }
    }

    pub(crate) fn failed(error: TokenError) -> Self {
        Self {
            state: State::Failed { error },
        }
    }
}

impl<F, J, R, E> Future for ResponseFuture<F, J>
where
    F: Future<Output = Result<Response<R>, E>>,
    J: Judge<Response<R>, E>,
{
    type Output = Result<Response<R>, Error<E>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                // ## Sent => (Held | done)
                StateProj::Sent { inner, sent, judge } => {
                    // `polled` is matched by reference, because each move of a response copies it.
                    let polled = inner.poll(cx);
                    let Poll::Ready(outcome) = &polled else {
                        return Poll::Pending;
                    };
                    match judge.judge(outcome.as_ref()) {
                        Judgement::Accepted => sent.source.shared.accept(sent.generation),
                        Judgement::Nothing => {}
                        judgement => match sent.reject(ready!(polled), judgement) {
                            Ok(held) => {
                                let held = Some(held);
                                this.state.set(State::Held { held });
                                continue;
                            }
                            Err(rejected) => return Poll::Ready(rejected),
                        },
                    }
                    return polled.map_err(Error::Inner);
                }
                // ## Held => done
                StateProj::Held { held } => {
                    let Some(waiting) = held else {
                        return Poll::Pending;
                    };
                    ready!(waiting.wait.as_mut().poll(cx));
                    let Some(ended) = held.take() else {
                        return Poll::Pending;
                    };
                    let refresh = ended.sent.refresh();
                    let rejection = Rejection::new(Judgement::Refused, refresh);
                    return Poll::Ready(rejected(ended.outcome, rejection));
                }
                // ## Failed => done
                StateProj::Failed { error } => {
                    return Poll::Ready(Err(Error::Token(error.clone())));
                }
            }
        }
    }
}

impl<F: Future, J> fmt::Debug for ResponseFuture<F, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture")
    }
}

// === impl Sent ===

impl Sent {
    /// Holds a refused call while its token is being replaced, or returns its outcome at once.
    #[cold]
    #[expect(
        clippy::type_complexity,
        reason = "the two forms of an outcome: held and returned"
    )]
    fn reject<R, E>(
        &self,
        outcome: Result<Response<R>, E>,
        judgement: Judgement,
    ) -> Result<Box<Held<Result<Response<R>, E>>>, Result<Response<R>, Error<E>>> {
        let refresh = match judgement {
            Judgement::Refused => match self.source.refuse(self.generation) {
                Ok(flight) => return Ok(Box::new(self.hold(outcome, flight))),
                Err(refresh) => refresh,
            },
            _ => Refresh::None,
        };
        Err(rejected(outcome, Rejection::new(judgement, refresh)))
    }

    fn hold<O>(&self, outcome: O, flight: u64) -> Held<O> {
        let longest = self.source.shared.now() + LONGEST;
        let deadline = self.deadline.and_then(|it| it.checked_sub(HEADROOM));
        let until = deadline.map_or(longest, |it| it.min(longest));
        let source = self.source.clone();
        Held {
            outcome,
            sent: self.clone(),
            wait: Box::pin(
                async move { drop(timeout_at(until, source.shared.ended(flight)).await) },
            ),
        }
    }

    /// The state of the refused token after the wait.
    fn refresh(&self) -> Refresh {
        let shared = &self.source.shared;
        if shared.supersedes(self.generation) {
            Refresh::Replaced
        } else if shared.bearer().is_some() {
            Refresh::Requested
        } else {
            Refresh::None
        }
    }
}

fn rejected<R, E>(
    outcome: Result<Response<R>, E>,
    rejection: Rejection,
) -> Result<Response<R>, Error<E>> {
    tracing::debug!(?rejection, "the service refused a call");
    match outcome {
        Ok(mut response) => {
            response.extensions_mut().insert(rejection);
            Ok(response)
        }
        Err(error) => Err(Error::Refused(error, rejection)),
    }
}

/// The longest time that a refusal is held: the default timeout of a token request.
const LONGEST: Duration = Duration::from_secs(10);
/// The time from the return of a held refusal to the deadline. Without it, the timer of a layer above
/// might fire first. Timers of tokio are exact to one millisecond.
const HEADROOM: Duration = Duration::from_millis(10);
