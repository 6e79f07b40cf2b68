use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use crate::{
    Error, LimitError,
    request::{Feedback, PermitBody, RequestPermit, held, loan::Loan, turn::Turn},
};

pin_project! {
    /// The response of a [`RequestLimit`](crate::RequestLimit).
    ///
    /// # Cancel safety
    /// Dropping it frees the place in flight; the rate permit stays live for as long as the
    /// service may still count the request. One that waits to send gives everything back.
    pub struct ResponseFuture<S, Request, F>
    where
        S: Service<Request>,
    {
        #[pin]
        state: State<S, Request, F>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, Request, F>
    where
        S: Service<Request>,
    {
        // ## Waiting => (Called | Refused)
        Waiting { call: Option<Box<Waiting<S, Request, F>>> },
        // ## Called => done
        Called {
            #[pin]
            response: S::Future,
            permit: Option<RequestPermit>,
            feedback: F,
        },
        // ## Refused => done
        Refused { error: Option<LimitError> },
    }
}

/// A call that waits for another permit, since it was made too late for its own.
pub(super) struct Waiting<S, Request, F> {
    pub(super) turn: Turn,
    /// Since its call, which all its waits have one bound from.
    pub(super) since: Instant,
    pub(super) inner: Loan<S>,
    pub(super) request: Request,
    pub(super) feedback: F,
}

// === impl ResponseFuture ===

impl<S: Service<Request>, Request, F> ResponseFuture<S, Request, F> {
    #[inline]
    pub(super) fn called(response: S::Future, permit: RequestPermit, feedback: F) -> Self {
        let permit = Some(permit);
        Self {
            state: State::Called {
                response,
                permit,
                feedback,
            },
        }
    }

    pub(super) fn waiting(call: Waiting<S, Request, F>) -> Self {
        let call = Some(Box::new(call));
        Self {
            state: State::Waiting { call },
        }
    }

    pub(super) fn refused(error: LimitError) -> Self {
        Self {
            state: State::Refused { error: Some(error) },
        }
    }
}

impl<S, Request, F, B> Future for ResponseFuture<S, Request, F>
where
    S: Service<Request, Response = Response<B>>,
    F: Feedback<Response<B>, S::Error>,
    B: Body,
{
    type Output = Result<Response<PermitBody<B>>, Error<S::Error>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let StateProjection::Waiting { call } = this.state.as_mut().project() {
            let next = poll_waiting(call, cx);
            held(next.is_pending());
            this.state.set(ready!(next));
        }
        match this.state.as_mut().project() {
            StateProjection::Called {
                response,
                permit,
                feedback,
            } => match response.poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Ok(response)) => {
                    let read = feedback.read(Ok(&response));
                    let whole = response.body().is_end_stream();
                    if permit
                        .as_mut()
                        .is_none_or(|permit| !permit.read(read, whole))
                    {
                        *permit = None;
                    }
                    let permit = permit.take();
                    Poll::Ready(Ok(response.map(|body| PermitBody::new(body, permit))))
                }
                Poll::Ready(Err(error)) => {
                    let read = feedback.read(Err(&error));
                    if let Some(mut permit) = permit.take() {
                        permit.read(read, true);
                    }
                    Poll::Ready(Err(Error::Inner(error)))
                }
            },
            StateProjection::Refused { error } => match error.take() {
                Some(error) => Poll::Ready(Err(Error::Limit(error))),
                // Polled after it was ready, which a future's contract leaves open.
                None => Poll::Pending,
            },
            StateProjection::Waiting { .. } => Poll::Pending,
        }
    }
}

impl<S: Service<Request>, Request, F> fmt::Debug for ResponseFuture<S, Request, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// Waits until the call may be sent, and makes it.
#[cold]
fn poll_waiting<S: Service<Request>, Request, F>(
    waiting: &mut Option<Box<Waiting<S, Request, F>>>,
    cx: &mut Context<'_>,
) -> Poll<State<S, Request, F>> {
    let Some(mut call) = waiting.take() else {
        return Poll::Pending;
    };
    match call.turn.poll_take(cx, call.since) {
        Poll::Ready(Ok(permit)) => Poll::Ready(State::Called {
            response: call.inner.call(call.request),
            permit: Some(permit),
            feedback: call.feedback,
        }),
        Poll::Ready(Err(error)) => Poll::Ready(State::Refused { error: Some(error) }),
        Poll::Pending => {
            *waiting = Some(call);
            Poll::Pending
        }
    }
}
