//! The layer, which is the user's hook, and the service, which notes what an error will need.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response};
use http_body::Body;
use tower::BoxError;
use tower_layer::Layer;
use tower_service::Service;

use super::future::{ClassifyFuture, Noted};
use crate::error::Error;
use crate::retry::context;
use crate::retry::saved::{Asked, Saved};

/// Turns every answer but a success into a typed [`Error`].
///
/// Use it innermost, right over the HTTP client, so that all layers above it see typed errors. See
/// [`Classify`] for what it does to an answer.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{BoxError, Layer, ServiceExt, service_fn};
/// use tower_tds_errors::{ClassifyLayer, Kind};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let client = service_fn(async |_: Request<()>| {
///     let mut response = Response::new(String::from("invalid token\n"));
///     *response.status_mut() = StatusCode::UNAUTHORIZED;
///     Ok::<_, BoxError>(response)
/// });
/// let error = ClassifyLayer::new().layer(client).oneshot(Request::new(())).await.unwrap_err();
/// assert_eq!(error.kind(), Kind::InvalidToken);
/// assert_eq!(error.message(), Some("invalid token"));
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ClassifyLayer {
    /// Nothing for no hook: then the way of a success counts no reference.
    hook: Option<Hook>,
}

/// What a user's service means instead.
#[derive(Clone)]
pub(super) struct Hook(Arc<Change>);

type Change = dyn Fn(&mut Error, Option<&HeaderMap>) + Send + Sync;

/// Turns every answer but a success into a typed [`Error`].
///
/// A 2xx or a 304 passes as it came, and so does an upgrade (101) that was asked for: the same body type, not
/// polled, and nothing allocated. The one exception is a page for people, `text/html`, where the request
/// accepts JSON or XML only. Of every other answer the body is read within 16 KiB and a second, and
/// to its end where that is within the bounds, so that the connection can be used again. What is
/// compressed is undone within 64 KiB. Whatever cuts the read short, a [`Retry`](crate::Retry) above
/// included, costs text and not the kind.
///
/// # Backpressure
///
/// Readiness is the inner service's own.
///
/// # Cancel safety
///
/// Dropping the future drops the inner future or the body that is being read.
///
/// # Clone
///
/// As the inner service's; the hook is shared.
///
/// # Errors
///
/// An [`Error`] for each answer that is no success, and for each error of the inner service, named
/// by the types in its chain.
#[derive(Clone, Debug)]
pub struct Classify<S> {
    inner: S,
    hook: Option<Hook>,
}

// === impl ClassifyLayer ===

impl ClassifyLayer {
    /// The layer, with the crate's own table and nothing besides.
    #[must_use]
    pub const fn new() -> Self {
        Self { hook: None }
    }

    /// Sets what else this service means: a function that may change an error by
    /// [`set_kind`](Error::set_kind) and [`forbid_retry`](Error::forbid_retry). It sees the headers
    /// of the answer, if there was one. It takes the place of one that was set before.
    ///
    /// It judges failures only: what passes as a success is not its to change. Whether the request
    /// was sent is not its to say, and what it has forbidden stays forbidden.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_tds_errors::{ClassifyLayer, GiveUp, Kind};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let layer = ClassifyLayer::new().hook(|error, headers| {
    ///     // This service says 404 while it is deployed.
    ///     if error.message().is_some_and(|said| said.starts_with("no Route")) {
    ///         error.set_kind(Kind::Unavailable);
    ///     }
    ///     if headers.is_some_and(|headers| headers.get("x-should-retry").is_some_and(|v| v == "false")) {
    ///         error.forbid_retry();
    ///     }
    /// });
    ///
    /// let client = service_fn(async |_: Request<()>| {
    ///     let answer = Response::builder().status(404).header("x-should-retry", "false");
    ///     Ok::<_, BoxError>(answer.body(String::from("no Route matched")).unwrap())
    /// });
    /// let error = layer.layer(client).oneshot(Request::new(())).await.unwrap_err();
    /// assert_eq!(error.kind(), Kind::Unavailable);
    /// assert!(!error.is_retryable());
    /// assert_eq!(error.gave_up(), Some(GiveUp::Forbidden));
    /// # }
    /// ```
    #[must_use]
    pub fn hook(
        mut self,
        hook: impl Fn(&mut Error, Option<&HeaderMap>) + Send + Sync + 'static,
    ) -> Self {
        self.hook = Some(Hook(Arc::new(hook)));
        self
    }
}

impl<S> Layer<S> for ClassifyLayer {
    type Service = Classify<S>;

    fn layer(&self, inner: S) -> Classify<S> {
        let hook = self.hook.clone();
        Classify { inner, hook }
    }
}

// === impl Hook ===

impl Hook {
    /// Lets it change the kind of `error` and forbid that it is retried. One that has stopped a retry
    /// layer below is settled.
    pub(super) fn judge(&self, error: &mut Error, headers: Option<&HeaderMap>) {
        if error.gave_up().is_none() {
            let sent = error.sent();
            (self.0)(error, headers);
            // Of one that was put in its place, too.
            error.facts_mut().sent = sent;
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

// === impl Classify ===

impl<S, B, R> Service<Request<B>> for Classify<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
    R: Body,
{
    type Response = Response<R>;
    type Error = Error;
    type Future = ClassifyFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner
            .poll_ready(cx)
            .map_err(|error| Error::from(error.into()))
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        // What is asked for is read here: a layer below the retry may have added to it.
        let is_named = self.hook.is_none() && context::names(request.uri());
        let line = (!is_named).then(|| Saved::line(request.method(), request.uri()));
        let noted = Noted {
            asked: Asked::of(request.headers()),
            line,
            hook: self.hook.clone(),
        };
        ClassifyFuture::new(self.inner.call(request), noted)
    }
}
