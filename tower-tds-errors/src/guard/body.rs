//! The body: counted, and timed while it is waited for.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use http::header::TRANSFER_ENCODING;
use http::{Version, response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep};
use tower::BoxError;

use super::bodies::Open;
use crate::clock;
use crate::error::Error;
use crate::kind::Kind;

pin_project! {
    /// The body of a success that says how far it came when it breaks off.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the inner body, and ends the silence that is measured.
    ///
    /// # Errors
    ///
    /// Each has [`received`](Error::received), and [`expected`](Error::expected) where the service
    /// announced a length. The part that came is not to be used.
    ///
    /// - [`Kind::Truncated`]: the body ended early. Fetch it again.
    /// - [`Kind::Stalled`]: nothing came for the idle limit while it was waited for. Fetch it again,
    ///   or allow more time.
    /// - Any other kind that a transport error has.
    pub struct GuardBody<R> {
        #[pin]
        inner: Option<R>,
        // Boxed, so that a body that needs no pinning needs none with this around it. Made by the
        // first wait, and used again by the others.
        silence: Option<Pin<Box<Sleep>>>,
        // When the silence has lasted too long, while there is one.
        due: Option<Instant>,
        idle: Duration,
        received: u64,
        expected: Option<u64>,
        framing: Framing,
        // Kept for its drop, at the end of the body or with it.
        open: Option<Open>,
    }
}

/// Whether the end of a body says that it is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Told,
    /// By the end of the connection, however that came about.
    Closed,
}

// === impl GuardBody ===

impl<R: Body> GuardBody<R> {
    pub(super) fn new(
        head: &response::Parts,
        inner: R,
        idle: Duration,
        open: Option<Open>,
    ) -> Self {
        let expected = inner.size_hint().exact();
        let closed = head.version < Version::HTTP_2
            && expected.is_none()
            && !head.headers.contains_key(TRANSFER_ENCODING);
        Self {
            inner: Some(inner),
            silence: None,
            due: None,
            idle,
            received: 0,
            expected,
            framing: if closed {
                Framing::Closed
            } else {
                Framing::Told
            },
            open,
        }
    }

    /// Whether its end will say that it is whole.
    ///
    /// An HTTP/1 body without length and chunks ends with its connection (RFC 9112, section 6.3),
    /// and one that broke off looks the same.
    #[must_use]
    pub fn is_verifiable(&self) -> bool {
        self.framing == Framing::Told
    }
}

impl<R> GuardBody<R> {
    /// Ends the body by an error. What is left of it is dropped, and its connection with it.
    fn broken(self: Pin<&mut Self>, mut error: Error) -> Error {
        let mut this = self.project();
        let facts = error.facts_mut();
        facts.received = Some(*this.received);
        facts.expected = *this.expected;
        this.inner.set(None);
        *this.silence = None;
        *this.open = None;
        error
    }
}

impl<R> Body for GuardBody<R>
where
    R: Body,
    R::Error: Into<BoxError>,
{
    type Data = R::Data;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<R::Data>, Error>>> {
        let mut this = self.as_mut().project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        let error = match inner.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Buf::remaining);
                let length = u64::try_from(length).unwrap_or(u64::MAX);
                *this.received = this.received.saturating_add(length);
                *this.due = None;
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(None) => {
                if this.expected.is_none_or(|all| *this.received >= all) {
                    this.inner.set(None);
                    *this.silence = None;
                    *this.open = None;
                    return Poll::Ready(None);
                }
                Error::new(Kind::Truncated, "fewer bytes came than were announced")
            }
            Poll::Ready(Some(Err(error))) => {
                let mut error = Error::from(error.into());
                // After the head the answer had begun, whatever the client calls it.
                if error.kind() == Kind::Incomplete {
                    error.facts_mut().kind = Kind::Truncated;
                }
                error
            }
            Poll::Pending => {
                // Only who waits can see a silence: a slow reader makes none.
                let silence = this
                    .silence
                    .get_or_insert_with(|| Box::pin(sleep(*this.idle)));
                if this.due.is_none() {
                    *this.due = clock::now().checked_add(*this.idle);
                    if let Some(due) = *this.due {
                        silence.as_mut().reset(due);
                    }
                }
                ready!(silence.as_mut().poll(cx));
                Error::new(Kind::Stalled, "no bytes came for as long as is waited for")
            }
        };
        Poll::Ready(Some(Err(self.broken(error))))
    }

    fn is_end_stream(&self) -> bool {
        let whole = self.expected.is_none_or(|all| self.received >= all);
        let inner = self.inner.as_ref();
        inner.is_none_or(|inner| whole && inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let inner = self.inner.as_ref();
        inner.map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<R> fmt::Debug for GuardBody<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardBody")
            .field("received", &self.received)
            .field("expected", &self.expected)
            .field("framing", &self.framing)
            .finish_non_exhaustive()
    }
}
