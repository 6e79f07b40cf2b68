//! The body: counted, and timed while it is waited for.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use http::header::TRANSFER_ENCODING;
use http::{Response, Version};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::BoxError;

use super::Bounds;
use crate::clock::{self, Timer};
use crate::error::{Error, Facts};
use crate::give_up::GiveUp;
use crate::kind::{Kind, Sent};
use crate::retry::saved::Line;

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
    /// - [`Kind::Truncated`]: the body ended early, went silent, or was too slow. Fetch it again.
    /// - [`Kind::Timeout`]: it had not ended at the [deadline](crate::Deadline::whole) of the call.
    /// - Any other kind that a transport error has.
    pub struct GuardBody<R> {
        #[pin]
        inner: Option<R>,
        // Boxed, so that a body that needs no pinning needs none with this around it. Made by the
        // first wait, and used again by the others.
        timer: Option<Pin<Box<Timer>>>,
        wait: Wait,
        bounds: Bounds,
        // The deadline of the call, if it counts until here.
        until: Option<Instant>,
        received: u64,
        framing: Framing,
        line: Option<Line>,
    }
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Framing {
    /// The length that was announced.
    expected: Option<u64>,
    is_verifiable: bool,
}

/// How long the body was waited for, and what came of it, since the rate was last looked at.
#[derive(Default)]
struct Wait {
    /// When the wait began that is going on, if one is.
    since: Option<Instant>,
    before: Duration,
    bytes: u64,
}

// === impl Framing ===

impl Framing {
    #[inline]
    pub(super) fn of(response: &Response<impl Body>) -> Self {
        // Of a HEAD or a 304 HTTP/2 says how long the body is that does not come.
        let body = response.body();
        let expected = body.size_hint().exact();
        let expected = expected.filter(|_| !body.is_end_stream());
        let is_verifiable = expected.is_some()
            || response.version() >= Version::HTTP_2
            || response.headers().contains_key(TRANSFER_ENCODING);
        Self {
            expected,
            is_verifiable,
        }
    }
}

// === impl GuardBody ===

impl<R: Body> GuardBody<R> {
    #[inline]
    pub(super) fn new(
        inner: R,
        framing: Framing,
        bounds: Bounds,
        until: Option<Instant>,
        line: Option<Line>,
    ) -> Self {
        Self {
            inner: Some(inner),
            timer: None,
            wait: Wait::default(),
            bounds,
            until,
            received: 0,
            framing,
            line,
        }
    }

    /// Whether its end will say that it is whole.
    ///
    /// An HTTP/1 body without length and chunks ends with its connection (RFC 9112, section 6.3),
    /// and one that broke off looks the same.
    #[must_use]
    pub fn is_verifiable(&self) -> bool {
        self.framing.is_verifiable
    }
}

impl<R> GuardBody<R> {
    /// Ends the body by an error. What is left of it is dropped, and its connection with it.
    fn broken(self: Pin<&mut Self>, mut error: Error) -> Error {
        let mut this = self.project();
        if let Some(line) = this.line.take() {
            line.note(&mut error);
        }
        let facts = error.facts_mut();
        facts.received = Some(*this.received);
        facts.expected = this.framing.expected;
        this.inner.set(None);
        *this.timer = None;
        error
    }

    /// Resolves when nothing more is waited for.
    fn poll_late(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Error> {
        let this = self.project();
        let timer = this.timer.get_or_insert_with(|| Box::pin(Timer::new()));
        let now = clock::now();
        if this.wait.since.is_none() {
            this.wait.since = Some(now);
            let silent = now.checked_add(this.bounds.idle);
            let end = silent
                .into_iter()
                .chain(*this.until)
                .chain(this.wait.slow_at(*this.bounds, now));
            timer.as_mut().set(end.min());
        }
        ready!(timer.as_mut().poll(cx));
        let now = clock::now();
        let since = this.wait.since.unwrap_or(now);
        if this.until.is_some_and(|until| until <= now) {
            return Poll::Ready(overdue());
        }
        if now.saturating_duration_since(since) >= this.bounds.idle {
            return Poll::Ready(late("no bytes came for as long as is waited for"));
        }
        this.wait.pause(now);
        if this.wait.is_slow(*this.bounds) {
            return Poll::Ready(late(SLOW));
        }
        // A stretch of waits is over, and enough came in it.
        *this.wait = Wait::default();
        cx.waker().wake_by_ref();
        Poll::Pending
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
        let is_whole = this
            .framing
            .expected
            .is_some_and(|all| *this.received >= all);
        if !is_whole && this.until.is_some_and(|until| until <= clock::now()) {
            let error = overdue();
            return Poll::Ready(Some(Err(self.broken(error))));
        }
        let error = match inner.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Buf::remaining);
                let length = u64::try_from(length).unwrap_or(u64::MAX);
                *this.received = this.received.saturating_add(length);
                this.wait.bytes = this.wait.bytes.saturating_add(length);
                if this.wait.since.is_some() {
                    this.wait.pause(clock::now());
                    if this.wait.is_slow(*this.bounds) {
                        let error = late(SLOW);
                        return Poll::Ready(Some(Err(self.broken(error))));
                    }
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(None) => {
                if this
                    .framing
                    .expected
                    .is_none_or(|all| *this.received >= all)
                {
                    this.inner.set(None);
                    *this.timer = None;
                    *this.line = None;
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
        let whole = self.framing.expected.is_none_or(|all| self.received >= all);
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

// === impl Wait ===

impl Wait {
    /// When the waits of this stretch will have lasted as long as a silence may, if a rate is asked.
    fn slow_at(&self, bounds: Bounds, now: Instant) -> Option<Instant> {
        bounds.least?;
        now.checked_add(bounds.idle.saturating_sub(self.before))
    }

    /// Ends the wait that is going on.
    fn pause(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            let waited = now.saturating_duration_since(since);
            self.before = self.before.saturating_add(waited);
        }
    }

    /// Whether the stretch is over with too little. One that is over with enough begins anew.
    fn is_slow(&mut self, bounds: Bounds) -> bool {
        let Some(least) = bounds.least.filter(|_| self.before >= bounds.idle) else {
            return false;
        };
        let asked = u128::from(least.get()).saturating_mul(self.before.as_millis());
        let came = u128::from(self.bytes).saturating_mul(1000);
        *self = Self::default();
        came < asked
    }
}

fn late(why: &'static str) -> Error {
    let source = io::Error::new(io::ErrorKind::TimedOut, why);
    Error::new(Kind::Truncated, source)
}

fn overdue() -> Error {
    let mut facts = Facts::new(Kind::Timeout);
    facts.sent = Sent::Answered;
    facts.gave_up = Some(GiveUp::Deadline);
    facts.waited_for = Some("the rest of the body".into());
    Error::build(facts, None)
}

const SLOW: &str = "fewer bytes a second came than are asked for";
