//! The future: a call, and a bounded read of an error's body.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut};
use http::{Method, Response, Uri, response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::BoxError;

use super::asked::Asked;
use super::{error_of, is_success, is_unasked};
use crate::clock::{self, Timer};
use crate::error::Error;
use crate::kind::Kind;

pin_project! {
    /// The future of [`Classify`](crate::Classify).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the inner future, or the body that is being read with its connection.
    pub struct ClassifyFuture<F, R> {
        #[pin]
        state: State<F, R>,
        noted: Noted,
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
        // Boxed, so that the future of a success stays small.
        Draining {
            drain: Pin<Box<Drain<R>>>,
        },
    }
}

pin_project! {
    /// A bounded read of an error body.
    ///
    /// The connection of a body that ended is reused. The others are dropped with their
    /// connections.
    struct Drain<R> {
        head: response::Parts,
        #[pin]
        body: R,
        bound: Timer,
        deadline: Option<Instant>,
        left: usize,
        bytes: Vec<u8>,
    }
}

/// The parts of a request that its error needs.
pub(super) struct Noted {
    pub(super) asked: Asked,
    pub(super) method: Method,
    pub(super) uri: Uri,
    /// When the read of an error's body ends.
    pub(super) deadline: Option<Instant>,
}

// === impl ClassifyFuture ===

impl<F, R> ClassifyFuture<F, R> {
    pub(super) fn new(inner: F, noted: Noted) -> Self {
        let state = State::Calling { inner };
        Self { state, noted }
    }
}

impl<F, R, E> Future for ClassifyFuture<F, R>
where
    F: Future<Output = Result<Response<R>, E>>,
    E: Into<BoxError>,
    R: Body,
{
    type Output = Result<Response<R>, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // A success has a short path of its own.
        let this = self.as_mut().project();
        if let StateProj::Calling { inner } = this.state.project() {
            match ready!(inner.poll(cx)) {
                Ok(response) if this.noted.is_answered(&response) => {
                    return Poll::Ready(Ok(response));
                }
                outcome => return self.poll_refused(outcome, cx),
            }
        }
        self.poll_draining(cx)
    }
}

impl<F, R: Body> ClassifyFuture<F, R> {
    /// Continues with an error, or with a response that is one.
    #[cold]
    fn poll_refused<E: Into<BoxError>>(
        mut self: Pin<&mut Self>,
        outcome: Result<Response<R>, E>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<R>, Error>> {
        let mut this = self.as_mut().project();
        match outcome {
            Ok(response) => {
                let drain = Box::pin(Drain::new(response, this.noted.deadline));
                this.state.set(State::Draining { drain });
                self.poll_draining(cx)
            }
            Err(error) => {
                let mut error = Error::from(error.into());
                this.noted.note(&mut error);
                Poll::Ready(Err(error))
            }
        }
    }

    #[cold]
    fn poll_draining(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<R>, Error>> {
        let this = self.project();
        let StateProj::Draining { drain } = this.state.project() else {
            return Poll::Pending;
        };
        let is_whole = ready!(drain.as_mut().poll(cx));
        let drain = drain.as_mut().project();
        let head = &*drain.head;
        // A success does not get here.
        let error = error_of(this.noted.asked, head.status, &head.headers, drain.bytes);
        let mut error = error.unwrap_or_else(|| Error::from_kind(Kind::Unrecognized));
        error.facts_mut().is_cut |= !is_whole;
        this.noted.note(&mut error);
        Poll::Ready(Err(error))
    }
}

impl<F, R> fmt::Debug for ClassifyFuture<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassifyFuture").finish_non_exhaustive()
    }
}

// === impl Drain ===

impl<R: Body> Drain<R> {
    fn new(response: Response<R>, deadline: Option<Instant>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            head,
            body,
            bound: Timer::default(),
            deadline,
            left: MOST_BYTES,
            bytes: Vec::new(),
        }
    }

    /// Reads the body. Returns whether it was read to its end.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let mut this = self.project();
        while !this.body.is_end_stream() {
            let Poll::Ready(frame) = this.body.as_mut().poll_frame(cx) else {
                if !this.bound.is_set() {
                    let bound = clock::now().checked_add(LONGEST);
                    this.bound
                        .set(bound.into_iter().chain(*this.deadline).min());
                }
                // Without a runtime there is no timer. The clock is compared as well, because the
                // timer may fire after that of a layer above.
                let is_over = this
                    .deadline
                    .is_some_and(|deadline| deadline <= clock::now());
                if this.bound.has_clock() && !is_over {
                    ready!(this.bound.poll(cx));
                }
                return Poll::Ready(false);
            };
            let Some(Ok(frame)) = frame else {
                return Poll::Ready(frame.is_none());
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let length = data.remaining();
            let room = MOST_BYTES.saturating_sub(this.bytes.len());
            this.bytes.put(data.take(room));
            let fits = length <= *this.left;
            // At least one, so that a body of empty frames reaches its bound.
            *this.left = this.left.saturating_sub(length.max(1));
            if *this.left == 0 {
                return Poll::Ready(fits && this.body.is_end_stream());
            }
        }
        Poll::Ready(true)
    }
}

// === impl Noted ===

impl Noted {
    /// Records the request in an error.
    fn note(&self, error: &mut Error) {
        error.facts_mut().note_request(&self.method, &self.uri);
    }

    /// Whether the response passes unchanged.
    #[inline]
    fn is_answered(&self, head: &Response<impl Sized>) -> bool {
        is_success(head.status()) && !is_unasked(head.status(), head.headers(), self.asked)
    }
}

/// Bytes on the wire. The largest known error page of the gateways has 4 KiB. Reading more costs
/// more than a new connection.
pub(super) const MOST_BYTES: usize = 16 * 1024;

/// Much longer than a complete error body takes, and short against a backoff.
const LONGEST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
