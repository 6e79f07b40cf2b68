//! Classification as a layer: a call, and a bounded read of an error's body.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut};
use http::{Method, Request, Response, Uri, response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::BoxError;
use tower_layer::Layer;
use tower_service::Service;
use tower_tds_outcome::{DeadlineAt, Outcome, Secrets};

use super::{MOST_BYTES, RequestFacts, error_of, is_grpc_refusal, is_page, is_success};
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
#[derive(Clone, Debug, Default)]
pub struct ClassifyLayer {
    secrets: Option<Secrets>,
    is_below_retry: bool,
}

/// Turns every response that is not a success into a typed [`Error`].
///
/// Passes on a 2xx or a 304 unchanged, without polling its body. There are two exceptions: an HTML
/// page, if the request accepts only JSON or XML, and a gRPC response whose head refuses the token or
/// reports a missing role.
///
/// The body of every other response is read, up to 16 KiB and for at most a second, so that the
/// connection can be reused. The read also ends 10 ms before the call's [`DeadlineAt`], so that the
/// layers above still return the error, made from the head and the bytes read so far.
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
    layer: ClassifyLayer,
}

pin_project! {
    /// Future of [`Classify`](crate::Classify).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the inner future, or the body that is being read, and so closes its
    /// connection.
    pub struct ClassifyFuture<F, R> {
        #[pin]
        state: State<F, R>,
        noted: Noted,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, R> {
        // ## Calling => (Draining | done)
        Calling {
            #[pin]
            inner: F,
        },
        // ## Draining => done
        // Boxed, so that the future of a success stays small.
        Draining {
            drain: Pin<Box<Drain<R>>>,
        },
    }
}

pin_project! {
    /// Bounded read of an error body.
    ///
    /// A body that is read to its end leaves its connection to the next request. Any other body is dropped, which
    /// closes its connection.
    struct Drain<R> {
        head: response::Parts,
        #[pin]
        body: R,
        timer: Timer,
        deadline: Option<Instant>,
        // Set by the first wait.
        until: Option<Instant>,
        left: usize,
        bytes: Vec<u8>,
        is_complete: bool,
    }
}

/// Facts about the request, kept until its response is there.
struct Noted {
    request: RequestFacts,
    /// `None` if a retry layer above names the request.
    name: Option<(Method, Uri)>,
    /// When the read of an error's body ends.
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
        }
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
    /// during each call. Either way it hides strings that look like secrets: see [`Secrets::redact`].
    #[must_use]
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = Some(secrets);
        self
    }
}

impl<S> Layer<S> for ClassifyLayer {
    type Service = Classify<S>;

    fn layer(&self, inner: S) -> Classify<S> {
        let layer = self.clone();
        Classify { inner, layer }
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
            .map_err(|error| Error::from(error.into()).with_known(self.layer.secrets.clone()))
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Copied here, because layers between the retry layer and this one may have added headers.
        let noted = Noted {
            request: RequestFacts::of(request.headers(), self.layer.secrets.as_ref()),
            name: (!self.layer.is_below_retry)
                .then(|| (request.method().clone(), request.uri().clone())),
            deadline: DeadlineAt::of(request.extensions())
                .map(|end| Instant::from_std(end.checked_sub(HEADROOM).unwrap_or(end))),
        };
        let state = State::Calling {
            inner: self.inner.call(request),
        };
        ClassifyFuture { state, noted }
    }
}

// === impl ClassifyFuture ===

impl<F, R, E> Future for ClassifyFuture<F, R>
where
    F: Future<Output = Result<Response<R>, E>>,
    E: Into<BoxError>,
    R: Body,
{
    type Output = Result<Response<R>, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Most calls succeed, so their path is short and inlined.
        let this = self.as_mut().project();
        if let StateProj::Calling { inner } = this.state.project() {
            match ready!(inner.poll(cx)) {
                Ok(response) if this.noted.is_answered(&response) => {
                    return Poll::Ready(Ok(response));
                }
                outcome => return self.poll_refused(outcome, cx),
            }
        }
        self.poll_draining(cx)
    }
}

impl<F, R: Body> ClassifyFuture<F, R> {
    /// Continues with an error, or with a response that becomes one.
    #[cold]
    fn poll_refused<E: Into<BoxError>>(
        mut self: Pin<&mut Self>,
        outcome: Result<Response<R>, E>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<R>, Error>> {
        let mut this = self.as_mut().project();
        match outcome {
            Ok(response) => {
                let drain = Box::pin(Drain::new(response, this.noted.deadline));
                this.state.set(State::Draining { drain });
                self.poll_draining(cx)
            }
            Err(error) => {
                let mut error = Error::from(error.into());
                this.noted.note(&mut error);
                Poll::Ready(Err(error))
            }
        }
    }

    #[cold]
    fn poll_draining(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<R>, Error>> {
        let this = self.project();
        let StateProj::Draining { drain } = this.state.project() else {
            return Poll::Pending;
        };
        ready!(drain.as_mut().poll(cx));
        let drain = drain.as_mut().project();
        let head = &*drain.head;
        // `error_of` returns `None` for a success only, which does not get here.
        let (request, own) = (&this.noted.request, head.extensions.get().copied());
        let error = error_of(request, own, head.status, &head.headers, drain.bytes);
        let mut error = error.unwrap_or_else(|| Error::from_kind(Kind::Unrecognized));
        error.facts_mut().is_cut = !*drain.is_complete;
        this.noted.note(&mut error);
        Poll::Ready(Err(error))
    }
}

impl<F, R> fmt::Debug for ClassifyFuture<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassifyFuture").finish_non_exhaustive()
    }
}

// === impl Drain ===

impl<R: Body> Drain<R> {
    fn new(response: Response<R>, deadline: Option<Instant>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            head,
            body,
            timer: Timer::default(),
            deadline,
            until: None,
            left: MOST_BYTES,
            bytes: Vec::new(),
            is_complete: false,
        }
    }

    /// Reads the body to its end or to a bound.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        while !this.body.is_end_stream() {
            let Poll::Ready(frame) = this.body.as_mut().poll_frame(cx) else {
                if this.until.is_none() {
                    let bound = clock::now().checked_add(LONGEST);
                    *this.until = bound.into_iter().chain(*this.deadline).min();
                }
                let is_over = this.timer.poll(*this.until, cx).is_ready();
                // Outside a runtime no timer would wake the task.
                if is_over || !this.timer.has_clock() {
                    return Poll::Ready(());
                }
                return Poll::Pending;
            };
            let frame = match frame {
                Some(Ok(frame)) => frame,
                Some(Err(_)) => return Poll::Ready(()),
                None => break,
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let length = data.remaining();
            let room = MOST_BYTES.saturating_sub(this.bytes.len());
            this.bytes.put(data.take(room));
            // Empty frames count as one byte, so that endless ones reach the bound.
            *this.left = this.left.saturating_sub(length.max(1));
            if length > room || (*this.left == 0 && !this.body.is_end_stream()) {
                return Poll::Ready(());
            }
        }
        *this.is_complete = true;
        Poll::Ready(())
    }
}

// === impl Noted ===

impl Noted {
    /// Records the request in an error.
    fn note(&self, error: &mut Error) {
        let facts = error.facts_mut();
        if let Some((method, uri)) = &self.name {
            facts.note_request(method, uri);
        }
        if facts.secrets.is_none() {
            facts.secrets = self.request.secrets();
        }
    }

    /// Whether the response passes unchanged.
    #[inline]
    fn is_answered(&self, head: &Response<impl Sized>) -> bool {
        let (status, headers) = (head.status(), head.headers());
        if let Some(own) = head.extensions().get::<Outcome>() {
            return *own == Outcome::Accepted;
        }
        is_success(status)
            && !is_page(status, headers, self.request.expected)
            && !is_grpc_refusal(status, headers)
    }
}

/// Much longer than the transfer of a complete error body, and short against the longest backoff
/// (10 s).
const LONGEST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
