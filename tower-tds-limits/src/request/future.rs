use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use crate::{
    Error, LimitError,
    connection::Exchange,
    request::{
        Feedback, Outcome, PermitBody, held,
        permit::{Moment, RequestPermit},
    },
};

pin_project! {
    /// The response of a [`RequestLimit`](crate::RequestLimit).
    ///
    /// # Cancel safety
    /// Dropping it frees the place in flight; the rate permit stays live for as long as the
    /// service may still count the request.
    pub struct ResponseFuture<Fut, F> {
        #[pin]
        state: State<Fut, F>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<Fut, F> {
        // ## Called => done
        Called {
            #[pin]
            response: Fut,
            permit: Option<RequestPermit>,
            // There while it waits for a moment to send.
            moment: Option<Moment>,
            feedback: F,
        },
        // ## Refused => done
        Refused { error: Option<LimitError> },
    }
}

// === impl ResponseFuture ===

impl<Fut, F> ResponseFuture<Fut, F> {
    pub(super) fn called(
        response: Fut,
        permit: RequestPermit,
        moment: Option<Moment>,
        feedback: F,
    ) -> Self {
        let permit = Some(permit);
        Self {
            state: State::Called {
                response,
                permit,
                moment,
                feedback,
            },
        }
    }

    pub(super) fn refused(error: LimitError) -> Self {
        Self {
            state: State::Refused { error: Some(error) },
        }
    }
}

impl<Fut, F, B, E> Future for ResponseFuture<Fut, F>
where
    Fut: Future<Output = Result<Response<B>, E>>,
    F: Feedback<Response<B>, E>,
    B: Body,
{
    type Output = Result<Response<PermitBody<B>>, Error<E>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        match this.state.as_mut().project() {
            StateProjection::Called {
                response,
                permit,
                moment,
                feedback,
            } => {
                if let (Some(wait), Some(permit)) = (moment.as_mut(), permit.as_mut()) {
                    let passed = permit.poll_send(wait, cx);
                    held(passed.is_pending());
                    let passed = ready!(passed);
                    *moment = None;
                    if let Err(error) = passed {
                        this.state.set(State::Refused { error: None });
                        return Poll::Ready(Err(Error::Limit(error)));
                    }
                }
                match ready!(response.poll(cx)) {
                    Ok(mut response) => {
                        let exchange = Exchange::begin(&mut response);
                        let read = feedback.read(Ok(&response));
                        let whole = response.body().is_end_stream();
                        let permit = after_head(permit, read, whole);
                        let exchange = exchange.filter(|_| !whole);
                        let track = |body| PermitBody::new(body, permit, exchange);
                        Poll::Ready(Ok(response.map(track)))
                    }
                    Err(error) => {
                        let read = feedback.read(Err(&error));
                        if let Some(permit) = permit.take() {
                            permit.after_error(read);
                        }
                        Poll::Ready(Err(Error::Inner(error)))
                    }
                }
            }
            StateProjection::Refused { error } => match error.take() {
                Some(error) => Poll::Ready(Err(Error::Limit(error))),
                // Polled after it was ready, which a future's contract leaves open.
                None => Poll::Pending,
            },
        }
    }
}

impl<Fut, F> fmt::Debug for ResponseFuture<Fut, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// The permit for the body, if the head leaves anything to hold.
#[inline]
fn after_head(
    permit: &mut Option<RequestPermit>,
    read: Outcome,
    whole: bool,
) -> Option<RequestPermit> {
    if permit.as_mut()?.after_head(read, whole) {
        return permit.take();
    }
    *permit = None;
    None
}
