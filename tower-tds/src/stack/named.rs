//! Adds what only the whole stack knows to a call: its origin, and the token endpoint for which it waits.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderValue, Request, header::HOST};
use pin_project_lite::pin_project;
use tower::BoxError;
use tower_oidc_cc::{Origin, TokenSource};
use tower_service::Service;
use tower_tds_errors::Error;
use tower_tds_limits::WaitCause;

/// Sends a request with only a path to the origin of its layer, if there is exactly one, and names the token endpoint
/// and its last failure if a call ends while it waits for a token.
#[derive(Debug, Clone)]
pub struct Named<S> {
    inner: S,
    tokens: TokenSource,
    /// Origin of requests that have only a path.
    origin: Option<Arc<Origin>>,
}

pin_project! {
    /// Future of a [`Named`].
    #[derive(Debug)]
    pub struct NamedFuture<F> {
        #[pin]
        inner: F,
        tokens: TokenSource,
    }
}

// === impl Named ===

impl<S> Named<S> {
    pub(crate) const fn new(inner: S, tokens: TokenSource, origin: Option<Arc<Origin>>) -> Self {
        Self {
            inner,
            tokens,
            origin,
        }
    }
}

impl<S, B> Service<Request<B>> for Named<S>
where
    S: Service<Request<B>, Error = tower_tds_limits::Error>,
{
    type Response = S::Response;
    type Error = Error;
    type Future = NamedFuture<S::Future>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let ready = self.inner.poll_ready(cx);
        ready.map_err(|error| BoxError::from(error).into())
    }

    #[inline]
    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if request.uri().authority().is_none()
            && let Some(origin) = &self.origin
        {
            *request.uri_mut() = origin.absolute(request.uri());
            // A bare connection does not add this header, which each request needs (RFC 9112,
            // section 3.2).
            if let Some(authority) = request.uri().authority()
                && let Ok(host) = HeaderValue::from_str(authority.as_str())
            {
                request.headers_mut().entry(HOST).or_insert(host);
            }
        }
        NamedFuture {
            inner: self.inner.call(request),
            tokens: self.tokens.clone(),
        }
    }
}

impl<F, R> Future for NamedFuture<F>
where
    F: Future<Output = Result<R, tower_tds_limits::Error>>,
{
    type Output = Result<R, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polled = this.inner.poll(cx);
        polled.map_err(|error| named(error, this.tokens))
    }
}

#[cold]
fn named(error: tower_tds_limits::Error, tokens: &TokenSource) -> Error {
    let waited_for_token = error.cause() == Some(WaitCause::Readiness);
    let error = Error::from(BoxError::from(error));
    if !waited_for_token {
        return error;
    }
    let health = tokens.health();
    let failed = health.last_error.as_ref().map(|error| format!(": {error}"));
    let failed = failed.unwrap_or_default();
    error.with_waited_for(format!("a token from {}{failed}", health.endpoint))
}
