//! The future: a call, and for the answers that are errors a bounded read.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Method, Response, Uri, response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower::BoxError;

use super::Answer;
use super::drain::Drain;
use super::status::{is_page, is_success};
use super::wanted::Wanted;
use crate::error::Error;
use crate::error::facts::Facts;
use crate::kind::Kind;

pin_project! {
    /// The future of [`Classify`](crate::Classify).
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

/// What the error will need of the request. Copies count references and do not allocate.
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) wanted: Wanted,
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

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let reading = match this.state.as_mut().project() {
                StateProj::Calling { inner } => match ready!(inner.poll(cx)) {
                    Ok(response) if this.asked.is_answered(&response) => {
                        return Poll::Ready(Ok(response));
                    }
                    Ok(response) => Box::new(Reading::new(response)),
                    Err(error) => return Poll::Ready(Err(this.asked.failed(error.into()))),
                },
                StateProj::Draining { reading } => {
                    let body = ready!(reading.drain.as_mut().poll(cx));
                    return Poll::Ready(Err(this.asked.refused(&reading.head, &body)));
                }
            };
            this.state.set(State::Draining { reading });
        }
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
        error.facts_mut().note_request(&self.method, &self.uri);
        error
    }

    fn refused(&self, head: &response::Parts, body: &[u8]) -> Error {
        let answer = Answer::new(head.status, &head.headers).body(body);
        // A success never comes here; if it did, its status would say so.
        let error = answer.wanted(self.wanted).error();
        let mut error = error.unwrap_or_else(|| Error::build(Facts::new(Kind::Unrecognized), None));
        error.facts_mut().note_request(&self.method, &self.uri);
        error
    }

    /// Whether the caller gets the response as it came.
    fn is_answered(&self, head: &Response<impl Sized>) -> bool {
        is_success(head.status()) && !is_page(head.status(), head.headers(), self.wanted)
    }
}
