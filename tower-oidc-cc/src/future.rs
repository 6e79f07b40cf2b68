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
use tower_tds_outcome::Outcome;

use crate::{
    error::{BoxError, Error, TokenError},
    rejection::{Refresh, Rejection},
    source::TokenSource,
    state::Event,
};

pin_project! {
    /// Resolves to the response of the inner service, or to an error. If the error has a [`token`](Error::token) error,
    /// nothing was sent.
    ///
    /// A refused call is held while its token is being replaced: until the token request has a result, for ten seconds
    /// at most, and not beyond the call's deadline ([`DeadlineAt`](tower_tds_outcome::DeadlineAt)). When you send it
    /// again, it carries the new token. If an outer timeout of yours is shorter, the call ends as a timeout.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the call of the inner service, but not a token request.
    pub struct ResponseFuture<F, T> {
        #[pin]
        state: State<F, T>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, T> {
        Sent {
            #[pin]
            inner: F,
            sent: Sent,
        },
        // `None` once the call has ended.
        Held {
            held: Option<Box<Held<T>>>,
        },
        Failed {
            error: TokenError,
        },
    }
}

/// Source, token and deadline of a sent call.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) source: TokenSource,
    /// Number of the token that was sent.
    pub(crate) generation: u64,
    pub(crate) deadline: Option<Instant>,
}

/// Refused call whose token is being replaced.
struct Held<T> {
    result: Result<T, BoxError>,
    outcome: Outcome,
    sent: Sent,
    /// Waits until the flight or the time for it has ended.
    wait: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
}

type Ended<R> = Result<Response<R>, Error>;

// === impl ResponseFuture ===

impl<F, T> ResponseFuture<F, T> {
    pub(crate) fn sent(inner: F, sent: Sent) -> Self {
        Self {
            state: State::Sent { inner, sent },
        }
    }

    pub(crate) fn failed(error: TokenError) -> Self {
        Self {
            state: State::Failed { error },
        }
    }
}

impl<F, R, E> Future for ResponseFuture<F, Response<R>>
where
    F: Future<Output = Result<Response<R>, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Response<R>, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                // ## Sent => (Held | done)
                StateProj::Sent { inner, sent } => {
                    // `polled` is matched by reference, because each move of a response copies it.
                    let polled = inner.poll(cx);
                    if let Poll::Ready(Ok(response)) = &polled
                        && Outcome::of_response(response) == Outcome::Accepted
                    {
                        sent.source.shared.accept(sent.generation);
                        return polled.map_err(Error::below);
                    }
                    match sent.settle(ready!(polled).map_err(Into::into)) {
                        Ok(held) => {
                            let held = Some(held);
                            this.state.set(State::Held { held });
                        }
                        Err(ended) => return Poll::Ready(ended),
                    }
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
                    let rejection = ended.sent.rejection(ended.outcome);
                    return Poll::Ready(rejected(ended.result, rejection));
                }
                // ## Failed => done
                StateProj::Failed { error } => {
                    return Poll::Ready(Err(error.clone().into()));
                }
            }
        }
    }
}

impl<F, T> fmt::Debug for ResponseFuture<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture")
    }
}

// === impl Sent ===

impl Sent {
    /// Holds a refused call while its token is being replaced, or returns the result at once.
    #[cold]
    fn settle<R>(
        &self,
        result: Result<Response<R>, BoxError>,
    ) -> Result<Box<Held<Response<R>>>, Ended<R>> {
        let outcome = match &result {
            Ok(response) => Outcome::of_response(response),
            Err(error) => Outcome::of_error(&**error).unwrap_or(Outcome::Lost),
        };
        let event = match outcome {
            Outcome::TokenRefused => Event::Refused(self.generation),
            Outcome::RoleMissing => Event::RoleMissing(self.generation),
            Outcome::NoHeader => {
                let rejection = Rejection::new(outcome, Refresh::None, false);
                return Err(rejected(result, rejection));
            }
            // Any other outcome shows nothing about the token.
            _ => return Err(result.map_err(Error::below)),
        };
        match self.source.report(event) {
            Ok(flight) => Ok(Box::new(self.hold(result, outcome, flight))),
            Err(refresh) => {
                let is_untried = self.source.shared.is_untried(self.generation);
                let rejection = Rejection::new(outcome, refresh, is_untried);
                Err(rejected(result, rejection))
            }
        }
    }

    fn hold<T>(&self, result: Result<T, BoxError>, outcome: Outcome, flight: u64) -> Held<T> {
        let longest = self.source.shared.now() + LONGEST;
        let deadline = self.deadline.and_then(|it| it.checked_sub(HEADROOM));
        let until = deadline.map_or(longest, |it| it.min(longest));
        let source = self.source.clone();
        Held {
            result,
            outcome,
            sent: self.clone(),
            wait: Box::pin(
                async move { drop(timeout_at(until, source.shared.ended(flight)).await) },
            ),
        }
    }

    /// Returns the rejection after the wait.
    fn rejection(&self, outcome: Outcome) -> Rejection {
        let shared = &self.source.shared;
        let refresh = if shared.supersedes(self.generation) {
            Refresh::Replaced
        } else if shared.bearer().is_some() && outcome == Outcome::TokenRefused {
            Refresh::Requested
        } else {
            Refresh::None
        };
        Rejection::new(outcome, refresh, shared.is_untried(self.generation))
    }
}

fn rejected<R>(result: Result<Response<R>, BoxError>, rejection: Rejection) -> Ended<R> {
    tracing::debug!(?rejection, "the service refused a call");
    match result {
        Ok(mut response) => {
            response.extensions_mut().insert(rejection);
            Ok(response)
        }
        Err(error) => Err(Error::refused(error, rejection)),
    }
}

/// Longest time that a refusal is held: the default timeout of a token request.
const LONGEST: Duration = Duration::from_secs(10);
/// Time from the return of a held refusal to the deadline. Without it, the timer of a layer above
/// might fire first: tokio's are exact to one millisecond.
const HEADROOM: Duration = Duration::from_millis(10);
