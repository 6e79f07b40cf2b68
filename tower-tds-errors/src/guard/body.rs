//! The guarded body: it counts its bytes, and measures each wait.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use http::header::TRANSFER_ENCODING;
use http::{HeaderMap, Method, Response, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::BoxError;

use crate::clock::{self, Timer};
use crate::error::Error;
use crate::give_up::GiveUp;
use crate::kind::{Kind, Sent};

pin_project! {
    /// The body of a success. Its errors have the number of bytes that arrived.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the inner body and its timer.
    ///
    /// # Errors
    ///
    /// Each has [`received`](Error::received). Discard the part that arrived.
    ///
    /// - [`Kind::Truncated`]: the body ended early or stalled. Fetch it again.
    /// - [`Kind::Timeout`]: the body had not ended at the [deadline](crate::Deadline::whole) of the
    ///   call.
    /// - Any other kind of a transport error.
    pub struct GuardBody<R> {
        #[pin]
        inner: Option<R>,
        // Boxed, so that this body is `Unpin` if the inner one is, and small to move. The first
        // wait creates it, and later waits reuse it.
        timer: Option<Box<Timer>>,
        // Whether the timer is set for the current wait.
        is_waiting: bool,
        idle: Duration,
        // The deadline of the call, if it covers the body.
        until: Option<Instant>,
        received: u64,
        framing: Framing,
        asked: Option<(Method, Uri)>,
    }
}

/// The way in which a body ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Framing {
    /// By the announced length.
    Length(u64),
    /// By an end mark: the last chunk, or the end of an HTTP/2 stream.
    Marked,
    /// By the end of the connection alone.
    Open,
}

// === impl Framing ===

impl Framing {
    #[inline]
    pub(super) fn of(response: &Response<impl Body>) -> Self {
        let body = response.body();
        let expected = if body.is_end_stream() {
            // With HTTP/2 a HEAD or a 304 announces the length of a body that is not sent.
            Some(0)
        } else {
            body.size_hint().exact()
        };
        if let Some(length) = expected {
            return Self::Length(length);
        }
        let is_marked = response.version() >= Version::HTTP_2 || is_chunked(response.headers());
        if is_marked { Self::Marked } else { Self::Open }
    }

    #[inline]
    const fn expected(self) -> Option<u64> {
        match self {
            Self::Length(length) => Some(length),
            Self::Marked | Self::Open => None,
        }
    }

    /// Whether all announced bytes have arrived, if a length was announced.
    #[inline]
    fn is_whole(self, received: u64) -> Option<bool> {
        self.expected().map(|all| received >= all)
    }
}

// === impl GuardBody ===

impl<R: Body> GuardBody<R> {
    #[inline]
    pub(super) fn new(
        inner: R,
        framing: Framing,
        idle: Duration,
        until: Option<Instant>,
        asked: Option<(Method, Uri)>,
    ) -> Self {
        Self {
            inner: Some(inner),
            timer: None,
            is_waiting: false,
            idle,
            until,
            received: 0,
            framing,
            asked,
        }
    }

    /// Whether the end of the body shows that it is complete.
    ///
    /// An HTTP/1 body without length and chunks ends with its connection (RFC 9112, section 6.3),
    /// and one that was cut looks the same.
    #[must_use]
    pub fn is_verifiable(&self) -> bool {
        !matches!(self.framing, Framing::Open)
    }
}

impl<R> GuardBody<R> {
    /// Records the request and the bytes received in an error of a layer above, such as a decoder.
    pub fn note(&self, error: &mut Error) {
        let facts = error.facts_mut();
        if let Some((method, uri)) = &self.asked {
            facts.note_request(method, uri);
        }
        facts.received = Some(self.received);
        facts.expected = self.framing.expected();
    }

    /// Ends the body with an error, and drops the rest with its connection.
    fn broken(self: Pin<&mut Self>, mut error: Error) -> Error {
        self.note(&mut error);
        let mut this = self.project();
        this.inner.set(None);
        *this.timer = None;
        error
    }

    /// Resolves when the wait for the next bytes is over.
    fn poll_late(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Error> {
        let this = self.project();
        let timer = this.timer.get_or_insert_with(Box::<Timer>::default);
        if !*this.is_waiting {
            *this.is_waiting = true;
            let silent = clock::now().checked_add(*this.idle);
            let end = silent.into_iter().chain(*this.until).min();
            timer.set(end);
        }
        ready!(timer.poll(cx));
        let is_over = this.until.is_some_and(|until| until <= clock::now());
        Poll::Ready(if is_over { overdue() } else { silent() })
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
        // After the deadline a read returns the end if all bytes have arrived, and otherwise an
        // error.
        let is_whole = this.framing.is_whole(*this.received) == Some(true);
        if !is_whole && this.until.is_some_and(|until| until <= clock::now()) {
            let error = overdue();
            return Poll::Ready(Some(Err(self.broken(error))));
        }
        let error = match inner.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Buf::remaining);
                let length = u64::try_from(length).unwrap_or(u64::MAX);
                *this.received = this.received.saturating_add(length);
                *this.is_waiting = false;
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(None) => {
                if this.framing.is_whole(*this.received) != Some(false) {
                    this.inner.set(None);
                    *this.timer = None;
                    return Poll::Ready(None);
                }
                Error::new(Kind::Truncated, "fewer bytes came than were announced")
            }
            Poll::Ready(Some(Err(error))) => {
                let mut error = Error::from(error.into());
                // After the head the response has begun, so a reset cut it.
                if error.kind() == Kind::Reset {
                    error.set_kind(Kind::Truncated);
                }
                error
            }
            Poll::Pending => ready!(self.as_mut().poll_late(cx)),
        };
        Poll::Ready(Some(Err(self.broken(error))))
    }

    fn is_end_stream(&self) -> bool {
        let whole = self.framing.is_whole(self.received) != Some(false);
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
            .field("framing", &self.framing)
            .finish_non_exhaustive()
    }
}

/// Whether the last coding is chunked. With another one the body ends with its connection (RFC
/// 9112, section 6.3).
fn is_chunked(headers: &HeaderMap) -> bool {
    let last = headers.get_all(TRANSFER_ENCODING).iter().next_back();
    let codings = last.and_then(|codings| codings.to_str().ok());
    let last = codings.and_then(|codings| codings.rsplit(',').next());
    last.is_some_and(|coding| coding.trim().eq_ignore_ascii_case("chunked"))
}

fn silent() -> Error {
    let why = "no bytes came for as long as is waited for";
    let source = io::Error::new(io::ErrorKind::TimedOut, why);
    Error::new(Kind::Truncated, source)
}

fn overdue() -> Error {
    let mut error = Error::from_kind(Kind::Timeout).with_sent(Sent::Answered);
    let facts = error.facts_mut();
    facts.gave_up = Some(GiveUp::Deadline);
    facts.waited_for = Some("the rest of the body".into());
    error
}
