//! The future: attempts, and the waits between them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::kept::Kept;
use super::replay::Replay;
use super::session::Session;
use super::shared::Shared;
use super::timer::Timer;
use crate::classify::is_success;
use crate::error::Error;
use crate::stop::Stop;

pin_project! {
    /// The future of [`Retry`](crate::Retry).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the attempt or the wait that is under way, and nothing is sent after.
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
        // ## Calling => (Freeing | done)
        Calling {
            #[pin]
            attempt: F,
        },
        // ## Freeing => (Waiting | done)
        // The attempt was dropped on the way here, and with it what it held. Passed at once but
        // for who waits for one of our bodies to end.
        Freeing,
        // ## Waiting => Readying
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
    #[inline]
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

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The way of nearly all calls, apart from the others so that it stays short.
        let this = self.as_mut().project();
        if let StateProj::Calling { attempt } = this.state.project() {
            let polled = attempt.poll(cx).map_err(Into::into);
            if let Poll::Ready(Ok(response)) = &polled
                && this.session.is_first()
            {
                check_order(response);
                return polled;
            }
            if let Some(response) = ready!(self.as_mut().poll_after(polled, cx))? {
                return Poll::Ready(Ok(response));
            }
        }
        self.poll_again(cx)
    }
}

impl<S, B, P, R> ResponseFuture<S, B, P>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<Error>,
    P: Replay<B>,
{
    /// Makes attempts until one has a response or is the last. A loop: those that fail at once, and
    /// wait for nothing, would otherwise be as many calls deep.
    #[cold]
    fn poll_again(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<R>, Error>> {
        loop {
            ready!(self.as_mut().poll_between(cx))?;
            let StateProj::Calling { attempt } = self.as_mut().project().state.project() else {
                // What has made it ready has called it.
                return Poll::Pending;
            };
            let polled = attempt.poll(cx).map_err(Into::into);
            if let Some(response) = ready!(self.as_mut().poll_after(polled, cx))? {
                return Poll::Ready(Ok(response));
            }
        }
    }

    /// Goes on after an attempt was polled: with its response, or else towards another attempt.
    #[cold]
    fn poll_after(
        mut self: Pin<&mut Self>,
        polled: Poll<Result<Response<R>, Error>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Response<R>>, Error>> {
        let mut this = self.as_mut().project();
        let failed = match polled {
            Poll::Ready(Ok(mut response)) => {
                check_order(&response);
                this.session.succeeded(&mut response);
                return Poll::Ready(Ok(Some(response)));
            }
            Poll::Ready(Err(error)) => this.session.failed(error),
            Poll::Pending => {
                if !this.timer.is_set() {
                    this.timer.as_mut().set(this.session.attempt_end());
                }
                ready!(this.timer.as_mut().poll(cx));
                this.session.cut_off()
            }
        };
        failed?;
        this.timer.set(this.session.freed_end());
        this.state.set(State::Freeing);
        Poll::Ready(Ok(None))
    }

    /// Goes on between attempts, until the next one is made.
    fn poll_between(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut this = self.as_mut().project();
        if let StateProj::Freeing = this.state.as_mut().project() {
            if this.session.poll_freed(cx).is_pending() {
                ready!(this.timer.as_mut().poll(cx));
            }
            this.timer.as_mut().set(this.session.wait_end()?);
            this.state.as_mut().set(State::Waiting);
        }
        if let StateProj::Waiting = this.state.as_mut().project() {
            // No look at the deadline: only a wait that ends before it was begun.
            if this.timer.is_set() {
                ready!(this.timer.as_mut().poll(cx));
            }
            this.timer.as_mut().set(this.session.deadline());
            this.state.as_mut().set(State::Readying);
        }
        match this.session.poll_ready(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => {
                return Poll::Ready(Err(this.session.not_ready(error.into())));
            }
            Poll::Pending => {
                ready!(this.timer.poll(cx));
                return Poll::Ready(Err(this.session.give_up(Stop::Deadline)));
            }
        }
        this.timer.set(None);
        let attempt = this.session.call()?;
        this.state.set(State::Calling { attempt });
        Poll::Ready(Ok(()))
    }
}

/// Finds the wrong order of layers, where that costs nothing in the end.
#[inline]
fn check_order<R>(response: &Response<R>) {
    debug_assert!(
        is_success(response.status()),
        "a failure came as a success: `Classify` has to be inside of `Retry`"
    );
}

impl<S, B, P> fmt::Debug for ResponseFuture<S, B, P>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
