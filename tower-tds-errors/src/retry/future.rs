//! The future: readiness, attempts and sleeps of one call, under its deadline.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::call::{At, Call};
use super::context::{self, Known};
use super::replay::Replay;
use crate::clock::Timer;
use crate::error::Error;
use crate::give_up::GiveUp;

pin_project! {
    /// The future of [`Retry`](crate::Retry).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the wait or the attempt that is under way, and nothing is sent after.
    pub struct RetryFuture<S, B, P>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S::Future, B>,
        #[pin]
        timer: Timer,
        // Makes all attempts. Between them it holds nothing.
        service: S,
        call: Call<B, P>,
        // Of the attempt that is pending.
        known: Known,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, B> {
        // ## Readying => (Calling | done)
        // The request until the first attempt: here, so that the attempt takes its room. Futures are moved.
        Readying { first: Option<Request<B>> },
        // ## Calling => (Sleeping | done)
        Calling {
            #[pin]
            attempt: F,
        },
        // ## Sleeping => (Readying | done)
        // The attempt was dropped on the way here, and with it what it held.
        Sleeping,
    }
}

// === impl RetryFuture ===

impl<S, B, P> RetryFuture<S, B, P>
where
    S: Service<Request<B>>,
{
    #[inline]
    pub(super) const fn new(service: S, request: Request<B>, call: Call<B, P>) -> Self {
        let first = Some(request);
        Self {
            state: State::Readying { first },
            timer: Timer::new(),
            service,
            call,
            known: Known::Nothing,
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
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if context::is_last_poll() {
            return self.poll_last(cx);
        }
        // A loop: attempts that fail at once, and wait for nothing, would else be as many calls deep.
        loop {
            let mut this = self.as_mut().project();
            match this.state.as_mut().project() {
                StateProj::Readying { first } => {
                    match this.service.poll_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => {
                            let error = this.call.not_ready(error.into());
                            return Poll::Ready(Err(named(error, first.as_ref())));
                        }
                        Poll::Pending => return self.poll_waiting(cx),
                    }
                    // Nothing is sent after the deadline.
                    if this.call.may_be_over() && this.call.is_over() {
                        let late = this.call.late(At::Readying);
                        return Poll::Ready(Err(named(late, first.as_ref())));
                    }
                    if this.timer.is_set() {
                        this.timer.set(None);
                    }
                    let service = this.service;
                    let attempt = this.call.send(first, |request| service.call(request))?;
                    // Of an attempt before.
                    *this.known = Known::Nothing;
                    this.state.set(State::Calling { attempt });
                }
                StateProj::Calling { attempt } => {
                    let mut polled = Poll::Pending;
                    // Who comes back after the deadline sends nothing more: only what is known is asked for.
                    if !(this.call.may_be_over() && this.call.is_over()) {
                        // What others have said is not of this attempt.
                        context::say(Known::Nothing);
                        match attempt.poll(cx) {
                            Poll::Ready(Ok(response)) if this.call.is_first_success(&response) => {
                                return Poll::Ready(Ok(response));
                            }
                            Poll::Ready(outcome) => {
                                polled = Poll::Ready(outcome.map_err(Into::into));
                            }
                            Poll::Pending => {
                                let was_held = *this.known == Known::Held;
                                *this.known = context::known();
                                if was_held && *this.known != Known::Held {
                                    // The attempt's time begins now.
                                    this.timer.set(None);
                                }
                            }
                        }
                    }
                    if let Some(response) = ready!(self.as_mut().poll_after(polled, cx))? {
                        return Poll::Ready(Ok(response));
                    }
                }
                StateProj::Sleeping => {
                    ready!(self.as_mut().poll_sleeping(cx))?;
                    self.as_mut()
                        .project()
                        .state
                        .set(State::Readying { first: None });
                }
            }
        }
    }
}

impl<S, B, P, R> RetryFuture<S, B, P>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<Error>,
    P: Replay<B>,
{
    /// Ends with what is known, for a retry above that has no more time: nothing is begun.
    #[cold]
    fn poll_last(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<R>, Error>> {
        let mut this = self.as_mut().project();
        let at = match this.state.as_mut().project() {
            StateProj::Readying { .. } => At::Readying,
            StateProj::Sleeping => At::Sleeping,
            StateProj::Calling { attempt } => {
                let at = At::of(*this.known);
                if *this.known != Known::Nothing
                    && let Poll::Ready(polled) = attempt.poll(cx)
                {
                    let answered = polled.map_err(Into::into);
                    let answered = answered.and_then(|response| this.call.answered(response));
                    return Poll::Ready(answered.map_err(|e| this.call.ended_at_the_last(e, at)));
                }
                at
            }
        };
        match this.call.known_at_the_last(at) {
            Some(known) => Poll::Ready(Err(known)),
            None => Poll::Pending,
        }
    }

    /// Goes on where the service below is not ready: until the deadline.
    #[cold]
    fn poll_waiting(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<R>, Error>> {
        let mut this = self.project();
        context::say(Known::Retry);
        if !this.timer.is_set() {
            this.timer.as_mut().set(this.call.due().head);
        }
        ready!(this.timer.poll(cx));
        let late = this.call.late(At::Readying);
        Poll::Ready(Err(match this.state.project() {
            StateProj::Readying { first } => named(late, first.as_ref()),
            StateProj::Calling { .. } | StateProj::Sleeping => late,
        }))
    }

    /// Goes on after an attempt was polled: with its response, or else towards another attempt.
    #[cold]
    fn poll_after(
        mut self: Pin<&mut Self>,
        mut polled: Poll<Result<Response<R>, Error>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Response<R>>, Error>> {
        let mut this = self.as_mut().project();
        if polled.is_pending() {
            context::say(Known::Retry);
            if !this.timer.is_set() {
                // A retry below has attempts of its own, and times for them.
                let end = match this.known {
                    Known::Retry | Known::Held => this.call.due().head,
                    Known::Nothing | Known::Answer => this.call.attempt_end(),
                };
                this.timer.as_mut().set(end);
            }
            ready!(this.timer.as_mut().poll(cx));
            if matches!(this.known, Known::Retry | Known::Held) && !this.call.is_over() {
                // It began as an attempt, and waits for something else by now.
                this.timer.as_mut().set(this.call.due().head);
                ready!(this.timer.as_mut().poll(cx));
            }
            // Whoever below knows a status says so now. What is missing of its body is only text.
            if let StateProj::Calling { attempt } = this.state.as_mut().project()
                && *this.known != Known::Nothing
            {
                polled = context::last_poll(|| attempt.poll(cx)).map_err(Into::into);
            }
        }
        let failed = match polled {
            Poll::Ready(answer) => match answer.and_then(|response| this.call.answered(response)) {
                Ok(response) => return Poll::Ready(Ok(Some(response))),
                Err(error) => this.call.failed(error, At::of(*this.known)),
            },
            Poll::Pending => this.call.cut_off(At::of(*this.known)),
        };
        // Before the wait, so that it holds nothing.
        this.state.set(State::Sleeping);
        let end = failed?;
        this.timer.set(end);
        Poll::Ready(Ok(None))
    }

    fn poll_sleeping(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut this = self.project();
        if this.timer.is_set() && this.timer.as_mut().poll(cx).is_pending() {
            if this.timer.has_clock() {
                context::say(Known::Retry);
                return Poll::Pending;
            }
            // Outside a runtime nobody would wake it.
            return Poll::Ready(Err(this.call.give_up(GiveUp::NotReady)));
        }
        // It is set again if readiness has to be waited for.
        this.timer.set(None);
        Poll::Ready(Ok(()))
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

/// Names the request in the error of a call whose first attempt was not made.
#[cold]
fn named<B>(mut error: Error, first: Option<&Request<B>>) -> Error {
    if let Some(request) = first {
        let facts = error.facts_mut();
        facts.note_request(request.method(), request.uri());
    }
    error
}
