//! Spans of calls and of their attempts, with OpenTelemetry's names for HTTP clients.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;
use tower_tds_errors::{Attempt, Error};
use tracing::{Span, field::Empty};

#[cfg(feature = "metrics")]
use crate::metrics::Begun;

/// Records calls and their attempts in spans: `tds.call` and `tds.attempt`, at `info`.
///
/// A span has `http.request.method`, `server.address`, `server.port` and `url.path`, and at its end
/// `http.response.status_code` or `error.type`, which is the [kind](Error::kind). A call with
/// retries, and each attempt after the first, have `http.request.resend_count`, the number of
/// attempts before. No span has a query, a header or a body. If a deadline or the caller drops a
/// call or an attempt, its `error.type` is `cancelled`.
///
/// The span of an attempt has its last wait, for the inner service or for a permit:
/// `tds.wait.cause` ([`WaitCause::as_str`](tower_tds_limits::WaitCause::as_str)) and
/// `tds.wait.seconds`. `tds.client` is the [name](crate::Builder::name) of the client, if it has
/// one.
///
/// `url.path` is the unredacted path. If a path contains a secret, such as a key or a signed link,
/// filter the field or the spans. The texts of [`Error`] redact such segments.
pub struct Traced<S, E = Error> {
    inner: S,
    of: Of,
    name: Name,
    read: Read<E>,
}

/// The conversion of an inner error.
pub(crate) type Read<E> = Arc<dyn Fn(E) -> Error + Send + Sync>;

/// The name of a client.
pub(crate) type Name = Option<Arc<str>>;

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
    pub struct TracedFuture<F, E = Error> {
        // Set until it completes.
        #[pin]
        inner: Option<F>,
        read: Read<E>,
        watch: Watch,
    }

    impl<F, E> PinnedDrop for TracedFuture<F, E> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            this.watch.sees(|| this.inner.set(None));
            this.watch.dropped();
        }
    }
}

/// The record of a call or an attempt, written at its end or its drop.
struct Watch {
    span: Span,
    of: Of,
    begun: Begun,
    is_over: bool,
}

/// Stands in for the metrics when their feature is off.
#[cfg(not(feature = "metrics"))]
struct Begun;

// === impl Begun ===

#[cfg(not(feature = "metrics"))]
impl Begun {
    const fn now(_: &Name) -> Self {
        Self
    }

    const fn ended(&self, _: Of, _: Option<&Error>) {}

    const fn cancelled(&self, _: Of) {}
}

// === impl Traced ===

impl<S, E> Traced<S, E> {
    pub(crate) fn new(inner: S, of: Of, name: Name, read: Read<E>) -> Self {
        Self {
            inner,
            of,
            name,
            read,
        }
    }

    /// Begins the span of a request.
    #[inline]
    fn watch<B>(&self, request: &Request<B>) -> Watch {
        let span = match self.of {
            Of::Calls => tracing::info_span!(
                "tds.call",
                otel.kind = "client",
                tds.client = self.name.as_deref(),
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
                http.request.resend_count = resent(request),
                server.address = request.uri().host(),
                server.port = request.uri().port_u16(),
                url.path = request.uri().path(),
                http.response.status_code = Empty,
                error.type = Empty,
                tds.wait.cause = Empty,
                tds.wait.seconds = Empty,
            ),
        };
        Watch {
            span,
            of: self.of,
            begun: Begun::now(&self.name),
            is_over: false,
        }
    }
}

impl<S: fmt::Debug, E> fmt::Debug for Traced<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traced")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S: Clone, E> Clone for Traced<S, E> {
    #[inline]
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            of: self.of,
            name: self.name.clone(),
            read: Arc::clone(&self.read),
        }
    }
}

impl<S, B, R> Service<Request<B>> for Traced<S, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<R>;
    type Error = Error;
    type Future = TracedFuture<S::Future, S::Error>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(&*self.read)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let watch = self.watch(&request);
        TracedFuture {
            inner: Some({
                // The work of `call` belongs to the span as well.
                let _entered = watch.span.enter();
                self.inner.call(request)
            }),
            read: Arc::clone(&self.read),
            watch,
        }
    }
}

/// Calls by shared reference, if the inner service allows it.
impl<'a, S, B, R, F, E> Service<Request<B>> for &'a Traced<S, E>
where
    &'a S: Service<Request<B>, Response = Response<R>, Error = E, Future = F>,
    F: Future<Output = Result<Response<R>, E>>,
{
    type Response = Response<R>;
    type Error = Error;
    type Future = TracedFuture<F, E>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        (&self.inner).poll_ready(cx).map_err(&*self.read)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let watch = self.watch(&request);
        TracedFuture {
            inner: Some({
                let _entered = watch.span.enter();
                (&self.inner).call(request)
            }),
            read: Arc::clone(&self.read),
            watch,
        }
    }
}

// === impl TracedFuture ===

impl<F, R, E> Future for TracedFuture<F, E>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<R>, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (mut inner, read) = (this.inner, &**this.read);
        let polled = this.watch.sees(|| {
            let Some(called) = inner.as_mut().as_pin_mut() else {
                // A poll after completion.
                return Poll::Pending;
            };
            let polled = called.poll(cx);
            if polled.is_ready() {
                // The drop ends its waits, which are recorded in the span.
                inner.set(None);
            }
            polled.map_err(read)
        });
        if let Poll::Ready(ended) = &polled {
            this.watch.ended(ended);
        }
        polled
    }
}

impl<F, E> fmt::Debug for TracedFuture<F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracedFuture").finish_non_exhaustive()
    }
}

// === impl Watch ===

impl Watch {
    /// Runs `f` in the span.
    #[inline]
    fn sees<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let _entered = self.span.enter();
        f()
    }

    #[inline]
    fn ended<R>(&mut self, ended: &Result<Response<R>, Error>) {
        self.is_over = true;
        if !self.span.is_none() {
            note(&self.span, self.of, ended);
        }
        self.begun.ended(self.of, ended.as_ref().err());
    }

    fn dropped(&mut self) {
        if !self.is_over {
            self.span.record("error.type", CANCELLED);
            self.begun.cancelled(self.of);
        }
    }
}

/// The number of attempts before this one, if it is a retry.
fn resent<B>(request: &Request<B>) -> Option<u32> {
    let before = Attempt::of(request.extensions()).number().checked_sub(1)?;
    (before > 0).then_some(before)
}

/// The kind of a cancelled call or attempt.
pub(crate) const CANCELLED: &str = "cancelled";

#[cold]
fn note<R>(span: &Span, of: Of, ended: &Result<Response<R>, Error>) {
    let (status, attempts) = match ended {
        Ok(response) => {
            let attempts = Attempt::of(response.extensions()).number();
            (Some(response.status()), attempts)
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
