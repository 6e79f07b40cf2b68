//! The future: a call, and for the answers that are errors a bounded read.

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
    /// Dropping it drops the inner future, or the body that is being read and with it its connection.
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
        // Boxed: only errors come here, and the future of a success stays small.
        Draining {
            drain: Pin<Box<Drain<R>>>,
        },
    }
}

pin_project! {
    /// An error body that is read to its end, within bounds.
    ///
    /// A body that ended lets its connection be used again; the others are dropped, and their
    /// connections with them.
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

/// What the error will need of the request.
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
        // The way of a success, apart from the others so that it stays short.
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
        // A success never comes here; if it did, its status would say so.
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

    /// Whether the body was read as a whole, when there is no more to read.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let mut this = self.project();
        while !this.body.is_end_stream() {
            let Poll::Ready(frame) = this.body.as_mut().poll_frame(cx) else {
                if !this.bound.is_set() {
                    let bound = clock::now().checked_add(LONGEST);
                    this.bound
                        .set(bound.into_iter().chain(*this.deadline).min());
                }
                // Without a runtime there is no time to wait for. The clock counts as well as the timer,
                // which may wake after that of the layer above.
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
            // At least one, or a body of empty frames would never meet its bound.
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
    /// Names the request in an error.
    fn note(&self, error: &mut Error) {
        error.facts_mut().note_request(&self.method, &self.uri);
    }

    /// Whether the caller gets the response as it came.
    #[inline]
    fn is_answered(&self, head: &Response<impl Sized>) -> bool {
        is_success(head.status()) && !is_unasked(head.status(), head.headers(), self.asked)
    }
}

/// On the wire. The largest error page known of the gateways has 4 KiB; draining more costs more
/// than the connection that it saves.
pub(super) const MOST_BYTES: usize = 16 * 1024;

/// Far above any answer that comes whole, and short against a backoff.
const LONGEST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
