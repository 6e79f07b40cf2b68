//! The future of one call: its readiness, attempts and waits, under one deadline.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::call::{At, Call};
use super::replay::Replay;
use crate::clock::Timer;
use crate::error::Error;
use crate::give_up::GiveUp;

pin_project! {
    /// The future of [`Retry`](crate::Retry).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the wait or the attempt in flight, and nothing is sent after.
    pub struct RetryFuture<S, B, P>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S::Future, B>,
        // Set for the deadline, or for a backoff.
        timer: Timer,
        service: S,
        call: Call<B, P>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, B> {
        // ## Readying => (Calling | done)
        // The first request shares its room with the attempt, so that the future is small to move.
        Readying { first: Option<Request<B>> },
        // ## Calling => (Sleeping | done)
        Calling {
            #[pin]
            attempt: F,
        },
        // ## Sleeping => (Readying | done)
        // The attempt was dropped, with all that it held.
        Sleeping,
    }
}

// === impl RetryFuture ===

impl<S, B, P> RetryFuture<S, B, P>
where
    S: Service<Request<B>>,
{
    #[inline]
    pub(super) fn new(service: S, request: Request<B>, call: Call<B, P>) -> Self {
        let first = Some(request);
        Self {
            state: State::Readying { first },
            timer: Timer::default(),
            service,
            call,
        }
    }
}

impl<S, B, P, R> Future for RetryFuture<S, B, P>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<Error>,
    P: Replay<B>,
{
    type Output = Result<Response<R>, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // A loop, because attempts that fail at once would recurse.
        loop {
            match this.state.as_mut().project() {
                StateProj::Readying { first } => {
                    match this.service.poll_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => {
                            let error = this.call.not_ready(error.into());
                            return Poll::Ready(Err(named(error, first.as_ref())));
                        }
                        Poll::Pending => {
                            if !this.timer.is_set() {
                                this.timer.set(this.call.deadline());
                            }
                            ready!(this.timer.poll(cx));
                            let late = this.call.late(At::Readying);
                            return Poll::Ready(Err(named(late, first.as_ref())));
                        }
                    }
                    // Nothing is sent after the deadline.
                    if this.call.is_over() {
                        let late = this.call.late(At::Readying);
                        return Poll::Ready(Err(named(late, first.as_ref())));
                    }
                    if this.timer.is_set() {
                        this.timer.set(None);
                    }
                    let service = &mut *this.service;
                    let attempt = this.call.send(first, |request| service.call(request))?;
                    this.state.set(State::Calling { attempt });
                }
                StateProj::Calling { mut attempt } => {
                    let mut polled = attempt.as_mut().poll(cx);
                    if polled.is_pending() {
                        if !this.timer.is_set() {
                            this.timer.set(this.call.deadline());
                        }
                        ready!(this.timer.poll(cx));
                        // A layer below that reads the deadline ends with the cause of its wait, or
                        // with a status.
                        polled = attempt.poll(cx);
                    }
                    let failed = match polled {
                        Poll::Ready(Ok(response)) => {
                            if this.call.is_first_success(&response) {
                                return Poll::Ready(Ok(response));
                            }
                            match this.call.answered(response) {
                                Ok(response) => return Poll::Ready(Ok(response)),
                                Err(error) => this.call.failed(error),
                            }
                        }
                        Poll::Ready(Err(error)) => this.call.failed(error.into()),
                        Poll::Pending => Err(this.call.late(At::Calling)),
                    };
                    // Dropped before the wait, so that the wait holds nothing.
                    this.state.set(State::Sleeping);
                    this.timer.set(failed?);
                }
                StateProj::Sleeping => {
                    if this.timer.is_set() && this.timer.poll(cx).is_pending() {
                        if this.timer.has_clock() {
                            return Poll::Pending;
                        }
                        // Outside a runtime nothing would wake it.
                        return Poll::Ready(Err(this.call.give_up(GiveUp::NotReady)));
                    }
                    this.timer.set(None);
                    this.state.set(State::Readying { first: None });
                }
            }
        }
    }
}

impl<S, B, P> fmt::Debug for RetryFuture<S, B, P>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryFuture").finish_non_exhaustive()
    }
}

/// Records the request in the error of a call without an attempt.
#[cold]
fn named<B>(mut error: Error, first: Option<&Request<B>>) -> Error {
    if let Some(request) = first {
        let facts = error.facts_mut();
        facts.note_request(request.method(), request.uri());
    }
    error
}
