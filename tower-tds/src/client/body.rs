//! Body of a response: within its bounds, and counted as in flight until its end.

use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http::{Method, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use tokio::{
    runtime::Handle,
    time::{Instant, Sleep, sleep_until},
};
use tower::BoxError;
use tower_tds_errors::{Error, Kind, Sent};
use tower_tds_limits::PermitBody;
use tower_tds_outcome::{Cause, Outcome, Resend, Secrets};

use crate::http::http1::AnyBody;

/// The decoded body of a response.
///
/// Until you have read it to its end or dropped it, the request counts as in flight.
///
/// # Errors
/// Discard a body that failed: it is incomplete. [`received`](Error::received) is the number of its
/// bytes, and the error's text has the announced length, if there was one.
/// - [`Kind::Truncated`](crate::Kind::Truncated): it ended early, or no bytes came for longer than
///   [`Builder::read_timeout`](crate::Builder::read_timeout), 30 s by default. Fetch it again.
/// - [`Kind::Timeout`](crate::Kind::Timeout): the [deadline](crate::Call::deadline) of the call passed
///   before its end.
/// - [`Kind::Malformed`](crate::Kind::Malformed): it is not in its declared coding.
///
/// The default is an empty body, which timeout layers above put into their own responses.
#[derive(Default)]
pub struct ResponseBody {
    /// `None` after its end.
    inner: Option<PermitBody<AnyBody>>,
    bounds: BodyBounds,
    /// Set during a wait.
    timer: Option<Pin<Box<Sleep>>>,
    received: u64,
    expected: Option<u64>,
    request: Option<(Method, Uri, Secrets)>,
}

/// Bounds of a body.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BodyBounds {
    /// Longest wait for the next bytes.
    pub(crate) idle: Duration,
    /// Deadline of the call.
    pub(crate) deadline: Option<Instant>,
}

// === impl ResponseBody ===

impl ResponseBody {
    /// Puts bounds around the body of a response.
    pub(crate) fn bounded(
        response: Response<PermitBody<AnyBody>>,
        bounds: BodyBounds,
        request: Option<(Method, Uri, Secrets)>,
    ) -> Response<Self> {
        response.map(|body| Self {
            expected: body.size_hint().exact(),
            inner: Some(body),
            bounds,
            request,
            ..Self::default()
        })
    }

    fn is_late(&self) -> bool {
        let deadline = self.bounds.deadline;
        deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Resolves when the wait for the next bytes is over.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        // The clock decides, because timers have a resolution.
        if self.is_late() {
            return Poll::Ready(overdue());
        }
        // Outside a runtime there is no timer.
        if self.timer.is_none() && Handle::try_current().is_ok() {
            let silent = Instant::now().checked_add(self.bounds.idle);
            let ends = silent.into_iter().chain(self.bounds.deadline).min();
            self.timer = ends.map(|ends| Box::pin(sleep_until(ends)));
        }
        match &mut self.timer {
            Some(timer) => ready!(timer.as_mut().poll(cx)),
            None => return Poll::Pending,
        }
        Poll::Ready(if self.is_late() { overdue() } else { silent() })
    }

    /// Ends the body with an error, and drops the rest with its connection.
    fn broken(&mut self, error: Error) -> Error {
        self.inner = None;
        self.timer = None;
        self.named(error.with_received(self.received, self.expected))
    }

    /// Returns the text of an error that quotes this body, where the service may repeat a token.
    #[cfg(feature = "json")]
    pub(crate) fn redacted(&self, error: &impl fmt::Display) -> String {
        let secrets = self.request.as_ref().map(|(.., secrets)| secrets.clone());
        secrets.unwrap_or_default().redact(&error.to_string())
    }

    /// Names the request in an error about this body.
    pub(crate) fn named(&self, error: Error) -> Error {
        match &self.request {
            Some((method, uri, _)) => error.with_request(method.clone(), uri),
            None => error,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let Some(inner) = &mut this.inner else {
            return Poll::Ready(None);
        };
        // Data comes before timers, so that a slow reader gets no false timeout.
        let error = match Pin::new(&mut *inner).poll_frame(cx).map_err(broken_off) {
            Poll::Ready(Some(Ok(frame))) => {
                let is_last = inner.is_end_stream();
                let length = frame.data_ref().map_or(0, Buf::remaining);
                let length = u64::try_from(length).unwrap_or(u64::MAX);
                this.received = this.received.saturating_add(length);
                this.timer = None;
                // At the deadline, the last frame of a complete body is still returned.
                if is_last || !this.is_late() {
                    return Poll::Ready(Some(Ok(frame)));
                }
                overdue()
            }
            Poll::Ready(Some(Err(error))) => error,
            Poll::Ready(None) => {
                this.inner = None;
                this.timer = None;
                return Poll::Ready(None);
            }
            Poll::Pending => ready!(this.poll_late(cx)),
        };
        Poll::Ready(Some(Err(this.broken(error))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody")
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

/// Converts an error of the connection or of the decoder.
fn broken_off(error: BoxError) -> Error {
    let mut error = Error::from(error).with_sent(Sent::Answered);
    match error.kind() {
        // After the head the response has begun, so a reset cut it.
        Kind::Reset => error.set_kind(Kind::Truncated),
        Kind::Unrecognized => error.set_kind(Kind::Malformed),
        _ => {}
    }
    error
}

fn silent() -> Error {
    let source = io::Error::new(
        io::ErrorKind::TimedOut,
        "no bytes came within the read timeout",
    );
    Error::new(Kind::Truncated, source).with_sent(Sent::Answered)
}

fn overdue() -> Error {
    let source = io::Error::new(io::ErrorKind::TimedOut, "the body had not ended");
    let mut cause = Cause::new(Outcome::Lost);
    cause.waited_for = Some("the rest of the body".into());
    cause.resend = Some(Resend::TooLate);
    Error::from(cause.over(source)).with_sent(Sent::Answered)
}

/// Half of the time that gateways wait for the next bytes of a server (nginx,
/// `proxy_read_timeout`). After a longer pause the connection is most likely dead.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(30);
