//! The future of a call that may be made twice.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::Request;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::{BearerAuth, Challenge, Error, Event, Judge, future::ResponseFuture, tokens::Wait};

type Outcome<S, B> =
    Result<<S as Service<Request<B>>>::Response, Error<<S as Service<Request<B>>>::Error>>;

pin_project! {
    /// Resolves to the outcome of the first try, or of the second if there was one.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the call below. A token request goes on for whoever else waits for it.
    pub struct ReplayFuture<S, J = Challenge, B = ()>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, J, B>,
        again: Option<(BearerAuth<S, J>, Request<B>)>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, J, B>
    where
        S: Service<Request<B>>,
    {
        First {
            #[pin]
            call: ResponseFuture<S::Future, J>,
        },
        // The outcome is an `Option` only so that it can be taken out.
        Token {
            wait: Wait,
            outcome: Option<Outcome<S, B>>,
        },
        Ready,
        Second {
            #[pin]
            call: ResponseFuture<S::Future, J>,
        },
    }
}

// === impl ReplayFuture ===

impl<S, J, B> ReplayFuture<S, J, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn new(
        call: ResponseFuture<S::Future, J>,
        again: Option<(BearerAuth<S, J>, Request<B>)>,
    ) -> Self {
        Self {
            state: State::First { call },
            again,
        }
    }
}

impl<S, J, B> Future for ReplayFuture<S, J, B>
where
    S: Service<Request<B>>,
    J: Judge<S::Response, S::Error> + Clone,
{
    type Output = Outcome<S, B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                // ## First => (Token | done)
                StateProj::First { mut call } => {
                    let outcome = ready!(call.as_mut().poll(cx));
                    if this.again.is_none() || !call.is_replaced() {
                        return Poll::Ready(outcome);
                    }
                    this.state.set(State::Token {
                        wait: Wait::default(),
                        outcome: Some(outcome),
                    });
                }
                // ## Token => (Ready | done)
                StateProj::Token { wait, outcome } => {
                    let fresh = match this.again {
                        Some((token, _)) => ready!(token.poll_token(wait, cx)).is_ok(),
                        None => false,
                    };
                    // Taken even if it is not returned: it may hold what the second try needs, a
                    // connection or the permit of a limiter.
                    let outcome = outcome.take();
                    if !fresh && let Some(outcome) = outcome {
                        return Poll::Ready(outcome);
                    }
                    drop(outcome);
                    this.state.set(State::Ready);
                }
                // ## Ready => (Second | done)
                StateProj::Ready => {
                    if let Some((token, _)) = this.again {
                        ready!(token.poll_ready(cx))?;
                    }
                    let Some((mut token, request)) = this.again.take() else {
                        // It is taken here alone, and this state ends here.
                        return Poll::Pending;
                    };
                    token.tell(&Event::Replayed);
                    let call = token.call(request);
                    this.state.set(State::Second { call });
                }
                // ## Second => done
                StateProj::Second { call } => return call.poll(cx),
            }
        }
    }
}

impl<S, J, B> fmt::Debug for ReplayFuture<S, J, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::First { .. } => "first",
            State::Token { .. } | State::Ready => "between",
            State::Second { .. } => "second",
        };
        f.debug_struct("ReplayFuture")
            .field("state", &state)
            .finish()
    }
}
