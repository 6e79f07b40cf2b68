//! The future: attempts, and the waits between them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::kept::Kept;
use super::replay::Replay;
use super::session::Session;
use super::shared::Shared;
use super::timer::Timer;
use crate::error::Error;
use crate::stop::Stop;

pin_project! {
    /// The future of [`Retry`](crate::Retry).
    pub struct ResponseFuture<S, B, P>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S::Future>,
        #[pin]
        timer: Timer,
        session: Session<S, B, P>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        // ## Calling => (Waiting | Readying | done)
        Calling {
            #[pin]
            attempt: F,
        },
        // ## Waiting => Readying
        // The attempt was dropped on the way here, and with it what it held.
        Waiting,
        // ## Readying => (Calling | done)
        Readying,
    }
}

// === impl ResponseFuture ===

impl<S, B, P> ResponseFuture<S, B, P>
where
    S: Service<Request<B>>,
{
    pub(super) fn new(attempt: S::Future, kept: Kept<B>, shared: Arc<Shared<S, P>>) -> Self {
        Self {
            state: State::Calling { attempt },
            timer: Timer::new(),
            session: Session::new(kept, shared),
        }
    }
}

impl<S, B, P, R> Future for ResponseFuture<S, B, P>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<Error>,
    P: Replay<B>,
{
    type Output = Result<Response<R>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Calling { attempt } => {
                    let failed = match attempt.poll(cx) {
                        Poll::Ready(Ok(mut response)) => {
                            this.session.succeeded(&mut response);
                            return Poll::Ready(Ok(response));
                        }
                        Poll::Ready(Err(error)) => this.session.failed(error.into()),
                        Poll::Pending => {
                            if !this.timer.is_set() {
                                this.timer.as_mut().set(this.session.attempt_end());
                            }
                            match this.timer.as_mut().poll(cx) {
                                Poll::Ready(()) => this.session.cut_off(),
                                Poll::Pending => return Poll::Pending,
                            }
                        }
                    };
                    match failed {
                        Ok(wait) => {
                            this.timer.as_mut().set(wait);
                            State::Waiting
                        }
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
                // No look at the deadline: only a wait that ends before it was begun.
                StateProj::Waiting => {
                    if this.timer.is_set() && this.timer.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    this.timer.as_mut().set(this.session.deadline());
                    State::Readying
                }
                StateProj::Readying => match this.session.poll_ready(cx) {
                    Poll::Ready(Ok(())) => {
                        this.timer.as_mut().set(None);
                        match this.session.call() {
                            Ok(attempt) => State::Calling { attempt },
                            Err(error) => return Poll::Ready(Err(error)),
                        }
                    }
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(Err(this.session.not_ready(error.into())));
                    }
                    Poll::Pending => match this.timer.as_mut().poll(cx) {
                        Poll::Ready(()) => {
                            return Poll::Ready(Err(this.session.give_up(Stop::Deadline)));
                        }
                        Poll::Pending => return Poll::Pending,
                    },
                },
            };
            this.state.set(next);
        }
    }
}

impl<S, B, P> fmt::Debug for ResponseFuture<S, B, P>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
