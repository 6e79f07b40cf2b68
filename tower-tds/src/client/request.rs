//! The body that you give with a request.

use std::{
    fmt,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Either, Empty, Full, combinators::UnsyncBoxBody};
use tower::BoxError;
use tower_tds_errors::Replay;

/// The body of a request.
///
/// `()`, `&'static str`, `String`, `Bytes`, `Vec<u8>`, `Full<Bytes>` and `Empty<Bytes>` convert
/// into a body that a retry can send again. Use a [stream](Self::stream) for a body that can be
/// sent only once. Where any other body would be retried, the call with a stream fails with
/// [`GiveUp::NotReplayable`](crate::layers::errors::GiveUp::NotReplayable).
///
/// # Examples
/// ```
/// use tower_tds::RequestBody;
///
/// let nothing = RequestBody::default();
/// let text = RequestBody::from("{\"line\":307}");
/// # drop((nothing, text));
/// ```
// One pointer, because each layer moves the request, and most requests have no body.
#[derive(Default)]
pub struct RequestBody(Option<Box<Either<Full<Bytes>, Stream>>>);

/// A body that is sent once. Its lock is never waited for: it makes the body `Sync`, which the
/// caller's need not be.
struct Stream(Mutex<UnsyncBoxBody<Bytes, BoxError>>);

/// Replays bytes, and sends streams once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplayBytes;

// === impl RequestBody ===

impl RequestBody {
    /// Creates a body that sends the data of `body` once. If that has no data, you get the
    /// [`default`](Self::default) body.
    ///
    /// # Examples
    /// ```
    /// use bytes::Bytes;
    /// use http_body_util::Full;
    /// use tower_tds::RequestBody;
    ///
    /// let upload = RequestBody::stream(Full::<Bytes>::from("a file, say"));
    /// # drop(upload);
    /// ```
    pub fn stream<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        // Adapters give even a GET a body. Without this line, a retry could not send such a request
        // again.
        if body.is_end_stream() {
            return Self::default();
        }
        let body = Mutex::new(body.map_err(Into::into).boxed_unsync());
        Self(Some(Box::new(Either::Right(Stream(body)))))
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Full::new(bytes).into()
    }
}

impl From<Full<Bytes>> for RequestBody {
    fn from(body: Full<Bytes>) -> Self {
        let is_empty = body.is_end_stream();
        Self((!is_empty).then(|| Box::new(Either::Left(body))))
    }
}

impl From<Empty<Bytes>> for RequestBody {
    fn from(_: Empty<Bytes>) -> Self {
        Self::default()
    }
}

impl From<()> for RequestBody {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<&'static str> for RequestBody {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl From<String> for RequestBody {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<Vec<u8>> for RequestBody {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.get_mut().0 {
            Some(body) => Pin::new(&mut **body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.0.as_ref().map(|body| body.size_hint());
        hint.unwrap_or_else(|| SizeHint::with_exact(0))
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The data of a body may be secret.
        f.write_str(match self.0.as_deref() {
            None | Some(Either::Left(_)) => "RequestBody(bytes)",
            Some(Either::Right(_)) => "RequestBody(stream)",
        })
    }
}

// === impl Stream ===

impl Body for Stream {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let body = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        Pin::new(body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        let body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        body.size_hint()
    }
}

// === impl ReplayBytes ===

impl Replay<RequestBody> for ReplayBytes {
    fn replay(&self, body: &RequestBody) -> Option<RequestBody> {
        match body.0.as_deref() {
            None => Some(RequestBody::default()),
            Some(Either::Left(bytes)) => Some(bytes.clone().into()),
            Some(Either::Right(_)) => None,
        }
    }

    fn size(&self, body: &RequestBody) -> Option<u64> {
        body.size_hint().exact()
    }
}
