//! The service: it notes what the error will need of the request, and calls.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower::BoxError;
use tower_service::Service;

use super::future::{Asked, ResponseFuture};
use super::rule::Rule;
use super::ruled::Ruled;
use super::wanted::Wanted;
use crate::error::Error;
use crate::tape::Tape;

/// Turns every answer but a success into a typed [`Error`].
///
/// A 2xx or a 304 passes as it came, and so does an upgrade (101): the same body type, not polled,
/// and nothing allocated. The one exception is a page for people, `text/html`, where the request
/// accepts JSON or XML only. Of every other answer the body is read within 16 KiB and a second, and
/// to its end where that is within the bounds, so that the connection can be used again. What is
/// compressed is undone within 64 KiB.
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
/// As the inner service's; the rules are shared.
///
/// # Errors
///
/// An [`Error`] for each answer that is no success, and for each error of the inner service, named
/// by the types in its chain.
#[derive(Clone, Debug)]
pub struct Classify<S> {
    inner: S,
    rules: Option<Arc<Vec<Rule>>>,
}

// === impl Classify ===

impl<S> Classify<S> {
    /// Classifies the answers of `inner`, without rules of the user.
    #[must_use]
    pub const fn new(inner: S) -> Self {
        Self::with(inner, None)
    }

    pub(super) const fn with(inner: S, rules: Option<Arc<Vec<Rule>>>) -> Self {
        Self { inner, rules }
    }
}

impl<S, B, R> Service<Request<B>> for Classify<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
    R: Body,
{
    type Response = Response<R>;
    type Error = Error;
    type Future = ResponseFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner
            .poll_ready(cx)
            .map_err(|error| Error::from(error.into()))
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let asked = Asked {
            line: Tape::of(request.method(), request.uri()),
            wanted: Wanted::of(request.headers()),
            ruled: self.rules.as_ref().map(|rules| Ruled::new(rules, &request)),
        };
        ResponseFuture::new(self.inner.call(request), asked)
    }
}
