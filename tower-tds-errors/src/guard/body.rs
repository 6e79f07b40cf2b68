//! The body: counted, and timed while it is waited for.

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
    /// The body of a success that says how far it came when it breaks off.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the inner body, and ends the silence that is measured.
    ///
    /// # Errors
    ///
    /// Each has [`received`](Error::received). The part that came is not to be used.
    ///
    /// - [`Kind::Truncated`]: the body ended early or went silent. Fetch it again.
    /// - [`Kind::Timeout`]: it had not ended at the [deadline](crate::Deadline::whole) of the call.
    /// - Any other kind that a transport error has.
    pub struct GuardBody<R> {
        #[pin]
        inner: Option<R>,
        // Boxed, so that a body that needs no pinning needs none with this around it, and since bodies are
        // moved. Made by the first wait, and used again by the others.
        timer: Option<Box<Timer>>,
        // Whether the wait is going on that the timer is set for.
        is_waiting: bool,
        idle: Duration,
        // The deadline of the call, if it counts until here.
        until: Option<Instant>,
        received: u64,
        framing: Framing,
        asked: Option<(Method, Uri)>,
    }
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug)]
pub(super) enum Framing {
    /// By the length that was announced.
    Length(u64),
    /// By a word of its own.
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
            // Of a HEAD or a 304 HTTP/2 says how long the body is that does not come.
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

    /// Whether all has come that was announced, as far as that is known.
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

    /// Whether its end will say that it is whole.
    ///
    /// An HTTP/1 body without length and chunks ends with its connection (RFC 9112, section 6.3),
    /// and one that broke off looks the same.
    #[must_use]
    pub fn is_verifiable(&self) -> bool {
        !matches!(self.framing, Framing::Open)
    }
}

impl<R> GuardBody<R> {
    /// Notes the request, and how far its answer came, in an error of a layer above: a decoder's, say, which
    /// knows neither.
    pub fn note(&self, error: &mut Error) {
        let facts = error.facts_mut();
        if let Some((method, uri)) = &self.asked {
            facts.note_request(method, uri);
        }
        facts.received = Some(self.received);
        facts.expected = self.framing.expected();
    }

    /// Ends the body by an error. What is left of it is dropped, and its connection with it.
    fn broken(self: Pin<&mut Self>, mut error: Error) -> Error {
        self.note(&mut error);
        let mut this = self.project();
        this.inner.set(None);
        *this.timer = None;
        error
    }

    /// Resolves when nothing more is waited for.
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
        // Who reads on after the deadline reads nothing but the end, if all has come.
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
                // After the head the answer had begun, whatever the client calls it.
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

/// By any other last coding it ends with its connection (RFC 9112, section 6.3).
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
