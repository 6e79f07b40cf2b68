//! Turns errors back into the responses that they came from, for callers that read statuses.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderValue, TRAILER};
use http::{Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;
use tower_tds_outcome::remove_connection_headers;

use crate::error::Error;

/// Turns each [`Error`] that came from a response back into that response, for code above that
/// reads statuses itself.
///
/// Crates such as octocrab, kube and `object_store` have their own error for a 404, and never see
/// one if the client below returns an [`Error`]. With such a crate, put this layer outermost, above
/// the retry layer: after the last retry the crate gets the [response](Error::into_response), and
/// reads it as it always does. Errors without a response stay errors.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use http_body_util::{BodyExt, Full};
/// use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};
/// use tower_tds_errors::{ClassifyLayer, IntoResponseLayer, RetryLayer};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let client = service_fn(async |_: Request<()>| {
///     let mut response = Response::new(Full::<bytes::Bytes>::from("no such stop"));
///     *response.status_mut() = StatusCode::NOT_FOUND;
///     Ok::<_, BoxError>(response)
/// });
/// let stack = ServiceBuilder::new()
///     .layer(IntoResponseLayer::new())
///     .layer(RetryLayer::new())
///     .layer(ClassifyLayer::new())
///     .service(client);
/// let response = stack.oneshot(Request::new(())).await.unwrap();
/// assert_eq!(response.status(), StatusCode::NOT_FOUND);
/// assert_eq!(response.collect().await.unwrap().to_bytes(), "no such stop");
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct IntoResponseLayer;

/// Turns each [`Error`] that came from a response back into that response; see
/// [`IntoResponseLayer`].
///
/// # Backpressure
///
/// The service is ready when the inner one is.
///
/// # Cancel safety
///
/// Dropping the future drops the inner one.
///
/// # Errors
///
/// Returns the errors of the inner service that did not come from a response; see
/// [`Error::into_response`].
#[derive(Clone, Copy, Debug)]
pub struct IntoResponse<S> {
    inner: S,
}

pin_project! {
    /// Future of [`IntoResponse`].
    #[derive(Debug)]
    pub struct IntoResponseFuture<F> {
        #[pin]
        inner: F,
    }
}

pin_project! {
    /// Body of a success, or the part of an error's body that was read.
    pub struct AnswerBody<B> {
        // The body of a success; `None` for an error.
        #[pin]
        body: Option<B>,
        // The part of an error's body that was read, until it is yielded.
        read: Bytes,
    }
}

/// Marks a response whose body is only the beginning of what the service sent.
///
/// [`Error::into_response`] puts it into the extensions of the response.
///
/// # Examples
///
/// ```
/// use tower_tds_errors::BodyCut;
///
/// let response = http::Response::new(());
/// let is_cut = response.extensions().get::<BodyCut>().is_some();
/// assert!(!is_cut);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BodyCut;

// === impl Error ===

impl Error {
    /// Returns the response that this error stands for: its status, its headers, and the part of
    /// its body that was read, at most 16 KiB.
    ///
    /// `Content-Length` is the length of that part, and headers that belong to the connection are
    /// removed. If bytes are missing, you find the extension [`BodyCut`] in the response.
    ///
    /// # Errors
    ///
    /// Returns the error itself if there was no response to the caller's request: if nothing was
    /// received, if the response was one to a token request, or if it was an upgrade (101).
    pub fn into_response(mut self) -> Result<Response<Bytes>, Self> {
        let facts = self.facts_mut();
        let status = facts.status.filter(|status| !status.is_informational());
        let (Some(status), Some(mut headers)) = (status, facts.headers.take()) else {
            return Err(self);
        };
        remove_connection_headers(&mut headers);
        headers.remove(TRAILER);
        let body = mem::take(&mut facts.body);
        // A response to HEAD has no body. Its length is that of the response to a GET, and stays.
        if facts.method != Some(Method::HEAD) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        if facts.is_cut {
            response.extensions_mut().insert(BodyCut);
        }
        Ok(response)
    }
}

// === impl IntoResponseLayer ===

impl IntoResponseLayer {
    /// Creates the layer.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for IntoResponseLayer {
    type Service = IntoResponse<S>;

    fn layer(&self, inner: S) -> IntoResponse<S> {
        IntoResponse { inner }
    }
}

// === impl IntoResponse ===

impl<S, B, R> Service<Request<B>> for IntoResponse<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<Error>,
{
    type Response = Response<AnswerBody<R>>;
    type Error = Error;
    type Future = IntoResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = self.inner.call(request);
        IntoResponseFuture { inner }
    }
}

// === impl IntoResponseFuture ===

impl<F, R, E> Future for IntoResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    E: Into<Error>,
{
    type Output = Result<Response<AnswerBody<R>>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(self.project().inner.poll(cx)) {
            Ok(response) => Ok(response.map(AnswerBody::of_success)),
            Err(error) => {
                let response = error.into().into_response();
                response.map(|response| response.map(AnswerBody::of_error))
            }
        })
    }
}

// === impl AnswerBody ===

impl<B> AnswerBody<B> {
    const fn of_success(body: B) -> Self {
        Self {
            body: Some(body),
            read: Bytes::new(),
        }
    }

    const fn of_error(read: Bytes) -> Self {
        Self { body: None, read }
    }
}

impl<B: Body<Data = Bytes>> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        if let Some(body) = this.body.as_pin_mut() {
            return body.poll_frame(cx);
        }
        let read = mem::take(this.read);
        Poll::Ready((!read.is_empty()).then(|| Ok(Frame::data(read))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Some(body) => body.is_end_stream(),
            None => self.read.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(u64::try_from(self.read.len()).unwrap_or(u64::MAX)),
        }
    }
}

impl<B> Default for AnswerBody<B> {
    fn default() -> Self {
        Self::of_error(Bytes::new())
    }
}

impl<B> fmt::Debug for AnswerBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Services may echo secrets in the body of an error.
        f.debug_struct("AnswerBody").finish_non_exhaustive()
    }
}
