//! The future: attempts, and the waits between them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep, sleep_until};
use tower_service::Service;

use super::replay::Replay;
use super::session::Session;
use crate::error::Error;

pin_project! {
    /// The future of [`Retry`](crate::Retry).
    pub struct ResponseFuture<S, B, P>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S::Future>,
        #[pin]
        deadline: Option<Sleep>,
        service: S,
        session: Session<B, P>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        // ## Calling => (Waiting | done)
        Calling {
            #[pin]
            attempt: F,
        },
        // ## Waiting => (Readying | done)
        // The attempt was dropped on the way here, and with it what it held.
        Waiting {
            #[pin]
            sleep: Sleep,
        },
        // ## Readying => (Calling | done)
        Readying,
    }
}

// === impl ResponseFuture ===

impl<S, B, P> ResponseFuture<S, B, P>
where
    S: Service<Request<B>>,
    P: Replay<B>,
{
    pub(super) fn new(service: S, attempt: S::Future, session: Session<B, P>) -> Self {
        Self {
            state: State::Calling { attempt },
            deadline: session.deadline().map(sleep_until),
            service,
            session,
        }
    }
}

impl<S, B, P, R> Future for ResponseFuture<S, B, P>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<Error>,
    P: Replay<B>,
{
    type Output = Result<Response<R>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Calling { attempt } => match attempt.poll(cx) {
                    Poll::Ready(Ok(mut response)) => {
                        this.session.succeeded(&mut response);
                        return Poll::Ready(Ok(response));
                    }
                    Poll::Ready(Err(error)) => match this.session.failed(error.into()) {
                        Ok(wait) if wait.is_zero() => State::Readying,
                        Ok(wait) => State::Waiting { sleep: sleep(wait) },
                        Err(error) => return Poll::Ready(Err(error)),
                    },
                    Poll::Pending if passed(this.deadline.as_mut(), cx) => {
                        return Poll::Ready(Err(this.session.cut_off()));
                    }
                    Poll::Pending => return Poll::Pending,
                },
                // No look at the deadline: only a wait that ends before it was begun.
                StateProj::Waiting { sleep } => match sleep.poll(cx) {
                    Poll::Ready(()) => State::Readying,
                    Poll::Pending => return Poll::Pending,
                },
                StateProj::Readying => match this.service.poll_ready(cx) {
                    Poll::Ready(Ok(())) => match this.session.next() {
                        Some(request) => State::Calling {
                            attempt: this.service.call(request),
                        },
                        None => return Poll::Ready(Err(this.session.out_of_time())),
                    },
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(Err(this.session.not_ready(error.into())));
                    }
                    Poll::Pending if passed(this.deadline.as_mut(), cx) => {
                        return Poll::Ready(Err(this.session.out_of_time()));
                    }
                    Poll::Pending => return Poll::Pending,
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

fn passed(deadline: Pin<&mut Option<Sleep>>, cx: &mut Context<'_>) -> bool {
    deadline
        .as_pin_mut()
        .is_some_and(|deadline| deadline.poll(cx).is_ready())
}
