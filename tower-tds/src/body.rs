//! The body of a response: guarded, decoded, and counted as in flight.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_core::Stream;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use pin_project_lite::pin_project;
use tower_tds_errors::{Error, Kind, Sent};
use tower_tds_limits::PermitBody;

use crate::compression::{DecodedBody, WireBody};

/// The body of hyper with the bodies of all layers around it.
pub(crate) type Layered = PermitBody<Pin<Box<DecodedBody>>>;

pin_project! {
    /// The decoded body of a response.
    ///
    /// Its request counts as in flight until its end or its drop.
    ///
    /// # Errors
    /// Discard the part of a body that ended early. The error has [`received`](Error::received),
    /// and its text the announced length, both counted on the wire.
    /// - [`Kind::Truncated`](crate::Kind::Truncated): it ended early, or stalled for longer than
    ///   [`Builder::guard`](crate::Builder::guard) allows, 30 s by default. Fetch it again.
    /// - [`Kind::Timeout`](crate::Kind::Timeout): it had not ended at a
    ///   [whole](crate::Deadline::whole) deadline.
    /// - [`Kind::Malformed`](crate::Kind::Malformed): it is not in its declared coding.
    ///
    /// # Examples
    /// A unit test creates a body:
    /// ```
    /// use tower_tds::ResponseBody;
    ///
    /// let response = http::Response::new(ResponseBody::from("{\"name\":\"bus\"}"));
    /// # drop(response);
    /// ```
    pub struct ResponseBody {
        #[pin]
        inner: Inner,
    }
}

pin_project! {
    #[project = InnerProjection]
    enum Inner {
        Received { #[pin] body: Layered },
        Made { #[pin] body: Full<Bytes> },
    }
}

// === impl ResponseBody ===

impl ResponseBody {
    pub(crate) fn new(body: Layered) -> Self {
        Self {
            inner: Inner::Received { body },
        }
    }

    /// Reads the whole body, of up to 64 MiB.
    ///
    /// # Errors
    /// [`Kind::InvalidRequest`](crate::Kind::InvalidRequest) if it is larger: read it with
    /// [`chunk`](Self::chunk). Otherwise the errors of the body.
    pub async fn bytes(self) -> Result<Bytes, Error> {
        // A body with a larger announced length is not read at all.
        if Body::size_hint(&self).lower() > MOST {
            return Err(too_large());
        }
        let most = usize::try_from(MOST).unwrap_or(usize::MAX);
        match Limited::new(self, most).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
            Err(error) => Err(Error::from(error)),
        }
    }

    /// Reads the next chunk, or `None` at the end.
    ///
    /// # Errors
    /// The errors of the body.
    ///
    /// # Cancel safety
    /// No data is lost: the next call returns the chunk.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.frame().await {
            // Trailers are skipped.
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Whether the end of the body shows that it is complete.
    ///
    /// A body without length and chunks ends with its connection, and one that was cut looks the
    /// same.
    #[must_use]
    pub fn is_verifiable(&self) -> bool {
        match &self.inner {
            Inner::Received { body } => wire(body).is_verifiable(),
            Inner::Made { .. } => true,
        }
    }
}

impl From<Bytes> for ResponseBody {
    fn from(bytes: Bytes) -> Self {
        Self {
            inner: Inner::Made {
                body: Full::new(bytes),
            },
        }
    }
}

impl From<&'static str> for ResponseBody {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl Stream for ResponseBody {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(self.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
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
        match self.project().inner.project() {
            InnerProjection::Received { mut body } => {
                let polled = body.as_mut().poll_frame(cx);
                #[cfg(feature = "compression")]
                let polled = polled.map_err(|error| undecoded(error, &body));
                polled
            }
            InnerProjection::Made { body } => body.poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Received { body } => body.is_end_stream(),
            Inner::Made { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Received { body } => body.size_hint(),
            Inner::Made { body } => body.size_hint(),
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody")
            .field("verifiable", &self.is_verifiable())
            .finish_non_exhaustive()
    }
}

/// The body on the wire, before decoding.
fn wire(body: &Layered) -> &WireBody {
    let decoded: &DecodedBody = body.get_ref();
    #[cfg(feature = "compression")]
    let decoded = decoded.get_ref().get_ref();
    decoded
}

/// Converts the error of the wire, or the decoder's own, which has no URI.
#[cfg(feature = "compression")]
fn undecoded(error: tower::BoxError, body: &Layered) -> Error {
    let mut error = if error.is::<Error>() || error.is::<std::io::Error>() {
        Error::from(error)
    } else {
        Error::new(Kind::Malformed, error).with_sent(Sent::Answered)
    };
    if error.received().is_none() {
        wire(body).note(&mut error);
    }
    error
}

fn too_large() -> Error {
    let error = Error::new(Kind::InvalidRequest, TOO_LARGE).with_sent(Sent::Answered);
    error.with_advice("read it by `chunk`")
}

/// The most memory of a whole body: more than any live response, and less than a small container
/// has.
const MOST: u64 = 64 << 20;

const TOO_LARGE: &str = "the body has more than the 64 MiB that are read at once";
