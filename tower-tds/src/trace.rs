//! A span for each call, and one in it for each attempt, by the names that OpenTelemetry has for HTTP clients.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;
use tower_tds_errors::{Attempt, Error, Retried};
use tracing::{Span, field::Empty};

#[cfg(feature = "metrics")]
use crate::metrics::Begun;

/// Notes what becomes of calls, or of their attempts, in spans: `tds.call` and `tds.attempt`, at `info`.
///
/// A span has `http.request.method`, `server.address`, `server.port` and `url.path`, and at its end
/// `http.response.status_code` or `error.type`, which is the [kind](Error::kind). That of a call has
/// `http.request.resend_count` where it was sent more than once; an attempt's is its number. None has a query, a
/// header or a body. What is dropped before its end, by a deadline or by its caller, has `cancelled` for its
/// `error.type`. Where no subscriber asks for spans they cost nothing that can be measured.
#[derive(Debug, Clone)]
pub struct Traced<S> {
    inner: S,
    of: Of,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Calls,
    Attempts,
}

pin_project! {
    /// The response of a [`Traced`].
    ///
    /// # Cancel safety
    /// Dropping it drops the inner one, and ends the span.
    pub struct TracedFuture<F> {
        // Dropped before the span has its end.
        #[pin]
        inner: F,
        watch: Watch,
    }
}

/// What is noted of a call or an attempt at its end, or at its drop.
struct Watch {
    span: Span,
    of: Of,
    begun: Begun,
    is_over: bool,
}

/// Without metrics nothing is counted.
#[cfg(not(feature = "metrics"))]
#[derive(Clone, Copy)]
struct Begun;

// === impl Begun ===

#[cfg(not(feature = "metrics"))]
impl Begun {
    const fn now() -> Self {
        Self
    }

    const fn ended(self, _: Of, _: Option<&Error>) {}

    const fn cancelled(self, _: Of) {}
}

// === impl Traced ===

impl<S> Traced<S> {
    pub(crate) const fn new(inner: S, of: Of) -> Self {
        Self { inner, of }
    }
}

impl<S, B, R> Service<Request<B>> for Traced<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Error>,
{
    type Response = Response<R>;
    type Error = Error;
    type Future = TracedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let span = match self.of {
            Of::Calls => tracing::info_span!(
                "tds.call",
                otel.kind = "client",
                http.request.method = %request.method(),
                http.request.resend_count = Empty,
                server.address = request.uri().host(),
                server.port = request.uri().port_u16(),
                url.path = request.uri().path(),
                http.response.status_code = Empty,
                error.type = Empty,
            ),
            Of::Attempts => tracing::info_span!(
                "tds.attempt",
                otel.kind = "client",
                http.request.method = %request.method(),
                http.request.resend_count = resent(&request),
                server.address = request.uri().host(),
                server.port = request.uri().port_u16(),
                url.path = request.uri().path(),
                http.response.status_code = Empty,
                error.type = Empty,
            ),
        };
        TracedFuture {
            // What is done in `call` itself belongs to it, too.
            inner: span.in_scope(|| self.inner.call(request)),
            watch: Watch {
                span,
                of: self.of,
                begun: Begun::now(),
                is_over: false,
            },
        }
    }
}

// === impl TracedFuture ===

impl<F, R> Future for TracedFuture<F>
where
    F: Future<Output = Result<Response<R>, Error>>,
{
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let ended = {
            let _entered = this.watch.span.enter();
            ready!(this.inner.poll(cx))
        };
        this.watch.ended(&ended);
        Poll::Ready(ended)
    }
}

impl<F> fmt::Debug for TracedFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracedFuture").finish_non_exhaustive()
    }
}

// === impl Watch ===

impl Watch {
    #[inline]
    fn ended<R>(&mut self, ended: &Result<Response<R>, Error>) {
        self.is_over = true;
        if !self.span.is_none() {
            note(&self.span, self.of, ended);
        }
        self.begun.ended(self.of, ended.as_ref().err());
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.is_over {
            self.span.record("error.type", CANCELLED);
            self.begun.cancelled(self.of);
        }
    }
}

/// The number of the attempt, where it is not the first.
fn resent<B>(request: &Request<B>) -> Option<u32> {
    let before = Attempt::of(request.extensions()).number().checked_sub(1)?;
    (before > 0).then_some(before)
}

/// The kind of what nobody waited for to its end.
pub(crate) const CANCELLED: &str = "cancelled";

#[cold]
fn note<R>(span: &Span, of: Of, ended: &Result<Response<R>, Error>) {
    let (status, attempts) = match ended {
        Ok(response) => {
            let retried = response.extensions().get::<Retried>().copied();
            (
                Some(response.status()),
                retried.map_or(1, Retried::attempts),
            )
        }
        Err(error) => {
            span.record("error.type", error.kind().as_str());
            (error.status(), error.attempts())
        }
    };
    if let Some(status) = status {
        span.record("http.response.status_code", status.as_u16());
    }
    if of == Of::Calls && attempts > 1 {
        span.record("http.request.resend_count", attempts.saturating_sub(1));
    }
}
