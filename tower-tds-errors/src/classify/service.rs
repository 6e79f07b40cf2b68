//! Classification as a layer: a call, and a bounded read of an error's body.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut};
use http::{Method, Request, Response, Uri};
use http_body::Body;
use pin_project_lite::pin_project;
use sync_wrapper::SyncWrapper;
use tokio::time::Instant;
use tower::BoxError;
use tower_layer::Layer;
use tower_service::Service;
use tower_tds_outcome::{DeadlineAt, Secrets};

use super::{MOST_BYTES, RequestFacts, by_head, error_of};
use crate::clock::{self, HEADROOM, Timer};
use crate::error::Error;
use crate::kind::Kind;

/// Turns every response that is not a success into a typed [`Error`].
///
/// Put it directly around the HTTP client, so that all other layers see typed errors. See
/// [`Classify`] for the rules.
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
#[derive(Clone, Debug)]
pub struct ClassifyLayer {
    secrets: Option<Secrets>,
    is_below_retry: bool,
    bounds: BodyBounds,
}

/// Bounds of the read of an error's body.
#[derive(Clone, Copy, Debug)]
struct BodyBounds {
    bytes: usize,
    time: Duration,
}

/// Turns every response that is not a success into a typed [`Error`].
///
/// Passes on a 2xx or a 304 unchanged, without polling its body. There are two exceptions: an HTML
/// page, if the request accepts only JSON or XML, and a gRPC response whose head refuses the token or
/// reports a missing role.
///
/// The body of every other response is read, up to 16 KiB and for at most a second unless you
/// [set other bounds](ClassifyLayer::error_bodies), so that the connection can be reused. The read also
/// ends 10 ms before the call's [`DeadlineAt`], so that the layers above still return the error, made
/// from the head and the bytes read so far.
///
/// If responses may be compressed, put a decompression layer below. Without one, the message of a compressed body
/// cannot be read, and the status alone decides.
///
/// # Backpressure
///
/// The service is ready when the inner one is.
///
/// # Cancel safety
///
/// Dropping the future drops the inner future or the body that is being read.
///
/// # Panics
///
/// If the body of an error is not there at once, its read panics outside of a tokio runtime with timers.
///
/// # Clone
///
/// Clones share the secrets. Each has its own clone of the inner service.
///
/// # Errors
///
/// Returns an [`Error`] for each response that is not a success, and for each error of the inner
/// service, whose kind comes from the error types in its chain.
#[derive(Clone, Debug)]
pub struct Classify<S> {
    inner: S,
    /// Behind one pointer, because each call moves the service.
    layer: Arc<ClassifyLayer>,
}

pin_project! {
    /// Future of [`Classify`](crate::Classify).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the inner future, or the body that is being read, and so closes its
    /// connection.
    pub struct ClassifyFuture<F> {
        #[pin]
        inner: F,
        noted: Noted,
        // The read of an error's body. Boxed, so that the future of a success stays small.
        read: Option<Read>,
    }
}

type Read = SyncWrapper<Pin<Box<dyn Future<Output = Error> + Send>>>;

/// Facts about the request, kept until its response is there.
#[derive(Clone)]
struct Noted {
    request: RequestFacts,
    /// `None` if a retry layer above names the request.
    name: Option<(Method, Uri)>,
    bounds: BodyBounds,
    /// Deadline of the call, before which the read of an error's body ends.
    deadline: Option<Instant>,
}

// === impl ClassifyLayer ===

impl ClassifyLayer {
    /// Creates the layer.
    ///
    /// If a response has another meaning at your service, change its kind in a `map_err` directly
    /// above this layer: see [`Error::set_kind`].
    #[must_use]
    pub const fn new() -> Self {
        Self {
            secrets: None,
            is_below_retry: false,
            bounds: BodyBounds {
                bytes: MOST_BYTES,
                time: LONGEST,
            },
        }
    }

    /// Reads the body of an error up to this size and for at most this time.
    ///
    /// Raise both if your program reads [`Error::body`], for example because the service describes
    /// the choices of a 300 or the faults of a 422 in a long document. While a body is read, its
    /// call waits, and its connection is not free.
    #[must_use]
    pub const fn error_bodies(mut self, bytes: usize, time: Duration) -> Self {
        self.bounds = BodyBounds { bytes, time };
        self
    }

    /// Declares that a retry layer is above: it names the request in each error, so this layer keeps
    /// no copy of its method and URI.
    #[must_use]
    pub const fn below_retry(mut self) -> Self {
        self.is_below_retry = true;
        self
    }

    /// Shares the secrets that no text of an error shows, for example those of a token source.
    ///
    /// Without this, the layer only knows the `Authorization` header of the request that failed, and keeps a copy of it
    /// during each call. Either way it hides what syntax shows to be secret: see [`Secrets::redact`].
    #[must_use]
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = Some(secrets);
        self
    }
}

impl Default for ClassifyLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for ClassifyLayer {
    type Service = Classify<S>;

    fn layer(&self, inner: S) -> Classify<S> {
        let layer = Arc::new(self.clone());
        Classify { inner, layer }
    }
}

// === impl Classify ===

impl<S, B, R> Service<Request<B>> for Classify<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
    R: Body<Data: Send> + Send + 'static,
{
    type Response = Response<R>;
    type Error = Error;
    type Future = ClassifyFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(|error| {
            let mut error = Error::from(error.into());
            let secrets = &mut error.facts_mut().cause.secrets;
            *secrets = self.layer.secrets.clone().or(secrets.take());
            error
        })
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Copied here, because layers between the retry layer and this one may have added headers.
        let deadline = request.extensions().get::<DeadlineAt>();
        let noted = Noted {
            request: RequestFacts::of(request.headers(), self.layer.secrets.as_ref()),
            name: (!self.layer.is_below_retry)
                .then(|| (request.method().clone(), request.uri().clone())),
            bounds: self.layer.bounds,
            deadline: deadline.map(|it| Instant::from_std(it.at)),
        };
        ClassifyFuture {
            inner: self.inner.call(request),
            noted,
            read: None,
        }
    }
}

// === impl ClassifyFuture ===

impl<F, R, E> Future for ClassifyFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    E: Into<BoxError>,
    R: Body<Data: Send> + Send + 'static,
{
    type Output = Result<Response<R>, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Most calls succeed, so their path is short and inlined.
        let this = self.project();
        if this.read.is_none() {
            match ready!(this.inner.poll(cx)) {
                Ok(response) => match by_head(&this.noted.request, &response) {
                    None => return Poll::Ready(Ok(response)),
                    Some(kind) => *this.read = Some(this.noted.read(kind, response)),
                },
                Err(error) => return Poll::Ready(Err(this.noted.failed(error.into()))),
            }
        }
        match this.read {
            Some(read) => read.get_mut().as_mut().poll(cx).map(Err),
            None => Poll::Pending,
        }
    }
}

impl<F> fmt::Debug for ClassifyFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassifyFuture").finish_non_exhaustive()
    }
}

// === impl Noted ===

impl Noted {
    /// Records the request in an error.
    fn note(&self, error: &mut Error) {
        let facts = error.facts_mut();
        if facts.cause.secrets.is_none() {
            facts.cause.secrets = self.request.secrets();
        }
        if let Some((method, uri)) = &self.name {
            facts.note_request(method, uri);
        }
    }

    /// Makes the error of a call without a response.
    #[cold]
    fn failed(&self, error: BoxError) -> Error {
        let mut error = Error::from(error);
        self.note(&mut error);
        error
    }

    /// Makes the error of a response.
    #[cold]
    fn read<R>(&self, kind: Kind, response: Response<R>) -> Read
    where
        R: Body<Data: Send> + Send + 'static,
    {
        let noted = self.clone();
        SyncWrapper::new(Box::pin(async move {
            let (head, body) = response.into_parts();
            let until = clock::now().checked_add(noted.bounds.time);
            let late = noted
                .deadline
                .map(|end| end.checked_sub(HEADROOM).unwrap_or(end));
            let until = until.into_iter().chain(late).min();
            let (bytes, is_complete) = read(body, noted.bounds.bytes, until).await;
            let mut error = error_of(&noted.request, kind, head, bytes, !is_complete);
            noted.note(&mut error);
            error
        }))
    }
}

/// Reads a body to its end, to `most` bytes or until a time. Returns its bytes, and whether these are all.
///
/// A body that is read to its end leaves its connection to the next request. Any other body is
/// dropped, which closes its connection.
async fn read<R: Body>(body: R, most: usize, until: Option<Instant>) -> (Vec<u8>, bool) {
    let (mut body, mut timer) = (pin!(body), Timer::default());
    // Empty frames count as one byte, so that endless ones reach the bound.
    let (mut bytes, mut left) = (Vec::new(), most);
    while !body.is_end_stream() {
        let frame = poll_fn(|cx| match body.as_mut().poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Some(frame)),
            Poll::Pending => timer.poll(until, cx).map(|()| None),
        });
        let data = match frame.await {
            Some(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => data,
                Err(_) => continue,
            },
            Some(None) => break,
            Some(Some(Err(_))) | None => return (bytes, false),
        };
        let (length, room) = (data.remaining(), most.saturating_sub(bytes.len()));
        bytes.put(data.take(room));
        left = left.saturating_sub(length.max(1));
        if length > room || (left == 0 && !body.is_end_stream()) {
            return (bytes, false);
        }
    }
    (bytes, true)
}

/// Much longer than the transfer of a complete error body, and short against the longest backoff
/// (10 s).
const LONGEST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
