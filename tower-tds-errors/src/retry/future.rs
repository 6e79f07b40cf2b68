//! The future of one call: its readiness, attempts and waits, under one deadline.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::call::{Call, Stage};
use super::request::Replay;
use super::trace::Trace;
use crate::clock::Timer;
use crate::error::Error;
use crate::kind::GiveUp;

pin_project! {
    /// The future of [`Retry`](crate::Retry).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the wait or the attempt in flight, and nothing is sent after that.
    pub struct RetryFuture<S, F, B, P> {
        // `F` is a parameter. With `S::Future`, `Send` would need `S: Service`, which the compiler
        // cannot prove in a spawned task for boxed errors.
        #[pin]
        state: State<F>,
        // For the deadline, or for a backoff.
        timer: Timer,
        service: S,
        call: Call<B, P>,
        trace: Trace,
    }

    impl<S, F, B, P> PinnedDrop for RetryFuture<S, F, B, P> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if this.trace.is_open() {
                // Drops the attempt inside its span, where the layers below record its waits.
                let _call = this.trace.enter_call();
                let _attempt = this.trace.enter_attempt();
                this.state.set(State::Sleeping { until: None });
            }
        }
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        // ## Readying => (Calling | done)
        Readying,
        // ## Calling => (Sleeping | done)
        Calling {
            #[pin]
            attempt: F,
        },
        // ## Sleeping => (Readying | done)
        // The attempt was dropped, with all that it held.
        Sleeping { until: Option<Instant> },
    }
}

// === impl RetryFuture ===

impl<S, F, B, P> RetryFuture<S, F, B, P> {
    #[inline]
    pub(super) fn new(service: S, call: Call<B, P>, trace: Trace) -> Self {
        Self {
            state: State::Readying,
            timer: Timer::default(),
            service,
            call,
            trace,
        }
    }
}

impl<S, B, P, R> Future for RetryFuture<S, S::Future, B, P>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<Error>,
    P: Replay<B>,
{
    type Output = Result<Response<R>, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.trace.is_open() {
            return self.poll_call(cx);
        }
        let entered = self.trace.enter_call();
        let polled = self.as_mut().poll_call(cx);
        drop(entered);
        if let Poll::Ready(ended) = &polled {
            self.project().trace.call_ended(ended.as_ref());
        }
        polled
    }
}

impl<S, B, P, R> RetryFuture<S, S::Future, B, P>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<Error>,
    P: Replay<B>,
{
    #[inline]
    fn poll_call(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Response<R>, Error>> {
        let mut this = self.project();
        // A loop, because a recursion over attempts that fail at once would be deep.
        loop {
            match this.state.as_mut().project() {
                StateProj::Readying => {
                    match this.service.poll_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => {
                            return Poll::Ready(Err(this.call.not_ready(error.into())));
                        }
                        Poll::Pending => ready!(this.timer.poll(this.call.deadline(), cx)),
                    }
                    // Nothing is sent after the deadline.
                    if this.call.is_over() {
                        return Poll::Ready(Err(this.call.late(Stage::Readying)));
                    }
                    let Some(body) = this.call.body() else {
                        return Poll::Ready(Err(this.call.give_up(GiveUp::NotReplayable)));
                    };
                    let request = this.call.request(body);
                    this.trace.attempt(&request);
                    let _attempt = this.trace.enter_attempt();
                    let attempt = this.service.call(request);
                    this.state.set(State::Calling { attempt });
                }
                StateProj::Calling { mut attempt } => {
                    let entered = this.trace.enter_attempt();
                    let mut polled = attempt.as_mut().poll(cx);
                    if polled.is_pending() {
                        ready!(this.timer.poll(this.call.deadline(), cx));
                        // Polled once more: a layer below that reads the deadline now returns its
                        // own error, with the cause of its wait or with a status.
                        polled = attempt.poll(cx);
                    }
                    let error = match polled {
                        Poll::Ready(Ok(response)) => {
                            this.trace.attempt_ended(Some(Ok(&response)));
                            if this.call.is_first_success(&response) {
                                return Poll::Ready(Ok(response));
                            }
                            match this.call.answered(response) {
                                Ok(response) => return Poll::Ready(Ok(response)),
                                Err(error) => Some(error),
                            }
                        }
                        Poll::Ready(Err(error)) => Some(error.into()),
                        Poll::Pending => None,
                    };
                    // Drops the attempt, so that the wait holds nothing.
                    this.state.set(State::Sleeping { until: None });
                    drop(entered);
                    this.trace.attempt_ended::<()>(error.as_ref().map(Err));
                    let until = match error {
                        Some(error) => this.call.failed(error)?,
                        None => return Poll::Ready(Err(this.call.late(Stage::Calling))),
                    };
                    this.state.set(State::Sleeping { until });
                }
                StateProj::Sleeping { until } => {
                    if until.is_some() && this.timer.poll(*until, cx).is_pending() {
                        if this.timer.has_clock() {
                            return Poll::Pending;
                        }
                        // Outside a runtime no timer would wake the task.
                        return Poll::Ready(Err(this.call.give_up(GiveUp::NotReady)));
                    }
                    this.state.set(State::Readying);
                }
            }
        }
    }
}

impl<S, F, B, P> fmt::Debug for RetryFuture<S, F, B, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryFuture").finish_non_exhaustive()
    }
}
