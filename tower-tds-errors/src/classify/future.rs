//! The future: a call, and for the answers that are errors a bounded read.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{HeaderMap, Response, response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower::BoxError;

use super::Answer;
use super::drain::{Drain, Drained};
use super::ruled::Ruled;
use super::status::{is_page, is_success};
use super::wanted::Wanted;
use crate::error::Error;
use crate::error::facts::Facts;
use crate::kind::Kind;
use crate::tape::Tape;

pin_project! {
    /// The future of [`Classify`](crate::Classify).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the inner future, or the body that is being read and with it its connection.
    pub struct ResponseFuture<F, R> {
        #[pin]
        state: State<F, R>,
        asked: Asked,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, R> {
        // ## Calling => (Draining | done)
        Calling {
            #[pin]
            inner: F,
        },
        // ## Draining => done
        // Boxed: only errors come here, and the future of a success stays small.
        Draining {
            reading: Box<Reading<R>>,
        },
    }
}

struct Reading<R> {
    head: response::Parts,
    drain: Pin<Box<Drain<R>>>,
}

/// What the error will need of the request.
pub(super) struct Asked {
    pub(super) line: Tape,
    pub(super) wanted: Wanted,
    pub(super) ruled: Option<Box<Ruled>>,
}

// === impl ResponseFuture ===

impl<F, R> ResponseFuture<F, R> {
    pub(super) fn new(inner: F, asked: Asked) -> Self {
        Self {
            state: State::Calling { inner },
            asked,
        }
    }
}

impl<F, R, E> Future for ResponseFuture<F, R>
where
    F: Future<Output = Result<Response<R>, E>>,
    E: Into<BoxError>,
    R: Body,
{
    type Output = Result<Response<R>, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The way of a success, apart from the others so that it stays short.
        let this = self.as_mut().project();
        if let StateProj::Calling { inner } = this.state.project() {
            match ready!(inner.poll(cx)) {
                Ok(response) if this.asked.is_answered(&response) => {
                    return Poll::Ready(Ok(response));
                }
                outcome => return self.poll_refused(outcome, cx),
            }
        }
        self.poll_draining(cx)
    }
}

impl<F, R: Body> ResponseFuture<F, R> {
    /// Goes on with an error, or with an answer that is one.
    #[cold]
    fn poll_refused<E: Into<BoxError>>(
        mut self: Pin<&mut Self>,
        outcome: Result<Response<R>, E>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<R>, Error>> {
        let mut this = self.as_mut().project();
        match outcome {
            Ok(response) => {
                let reading = Box::new(Reading::new(response));
                this.state.set(State::Draining { reading });
                self.poll_draining(cx)
            }
            Err(error) => Poll::Ready(Err(this.asked.failed(error.into()))),
        }
    }

    #[cold]
    fn poll_draining(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<R>, Error>> {
        let this = self.project();
        let StateProj::Draining { reading } = this.state.project() else {
            return Poll::Pending;
        };
        let drained = ready!(reading.drain.as_mut().poll(cx));
        Poll::Ready(Err(this.asked.refused(&reading.head, &drained)))
    }
}

impl<F, R> fmt::Debug for ResponseFuture<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

// === impl Reading ===

impl<R> Reading<R> {
    fn new(response: Response<R>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            head,
            drain: Box::pin(Drain::new(body)),
        }
    }
}

// === impl Asked ===

impl Asked {
    fn failed(&self, error: BoxError) -> Error {
        let mut error = Error::from(error);
        self.note(&mut error, None);
        error
    }

    fn refused(&self, head: &response::Parts, drained: &Drained) -> Error {
        let answer = Answer::new(head.status, &head.headers).body(&drained.bytes);
        // A success never comes here; if it did, its status would say so.
        let error = answer.wanted(self.wanted).error();
        let mut error = error.unwrap_or_else(|| Error::build(Facts::new(Kind::Unrecognized), None));
        error.facts_mut().body.cut |= !drained.whole;
        self.note(&mut error, Some(&head.headers));
        error
    }

    fn note(&self, error: &mut Error, headers: Option<&HeaderMap>) {
        let method = self.line.method();
        error.facts_mut().note_parts(method, self.line.parts());
        if let Some(ruled) = &self.ruled {
            ruled.judge(error, method, headers);
        }
    }

    /// Whether the caller gets the response as it came.
    #[inline]
    fn is_answered(&self, head: &Response<impl Sized>) -> bool {
        is_success(head.status()) && !is_page(head.status(), head.headers(), self.wanted)
    }
}
