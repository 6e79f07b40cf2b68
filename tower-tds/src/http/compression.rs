//! Compressed bodies: two request headers allow them, and tower-http decodes them.

use http::{Request, Response};
use hyper_util::client::legacy;
use tower::ServiceExt as _;
use tower_service::Service;
#[cfg(feature = "compression")]
use {
    bytes::Bytes,
    http::{
        HeaderValue, Method,
        header::{ACCEPT_ENCODING, CONTENT_ENCODING, RANGE},
    },
    http_body::{Body, Frame, SizeHint},
    pin_project_lite::pin_project,
    std::{
        pin::Pin,
        task::{Context, Poll, ready},
    },
    tower_http::decompression::Decompression,
};

use crate::{
    client::body::{AnyBody, boxed, marked},
    client::request::RequestBody,
    http::transport::Http,
};

/// Whether compressed bodies are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    Off,
    #[cfg(feature = "compression")]
    On,
}

#[cfg(feature = "compression")]
pin_project! {
    /// A body that yields the last byte of each frame as a separate frame, if the body is
    /// compressed.
    ///
    /// The decoder stops at the end of the first gzip member. It silently drops the rest of that
    /// frame, and fails only if another frame follows (tower-rs/tower-http#737). With this body
    /// another frame follows if the compressed data ends before the body does, so the rest is an
    /// error and not lost.
    struct Tail<B> {
        #[pin]
        inner: B,
        is_coded: bool,
        last: Option<Bytes>,
    }
}

#[cfg(feature = "compression")]
type ChangeRequest = fn(Request<RequestBody>) -> Request<RequestBody>;

// === impl Compression ===

impl Compression {
    /// Puts the decoder around the http client.
    pub(crate) fn around(
        self,
        http: Http,
    ) -> impl Service<
        Request<RequestBody>,
        Response = Response<AnyBody>,
        Error = legacy::Error,
        Future: Send + Unpin + 'static,
    > + Clone
    + Send
    + Sync
    + 'static {
        #[cfg(feature = "compression")]
        {
            // Only br and gzip, because another crate may turn on more features of tower-http.
            let http = http.map_response(|response| Tail::of(marked(response)));
            let http = Decompression::new(http).no_deflate().no_zstd();
            let (http, change): (_, ChangeRequest) = match self {
                Self::On => (http, request_coded),
                Self::Off => (http.no_br().no_gzip(), std::convert::identity),
            };
            http.map_response(boxed).map_request(change)
        }
        #[cfg(not(feature = "compression"))]
        http.map_response(|response| boxed(marked(response)))
    }
}

/// Adds the request header that the service defines. tower-http adds the standard one.
#[cfg(feature = "compression")]
fn request_coded(mut request: Request<RequestBody>) -> Request<RequestBody> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let headers = request.headers_mut();
    if headers.contains_key(RANGE) {
        // RFC 9110, section 14.2: a range counts coded bytes, and a part of them cannot be decoded.
        let identity = HeaderValue::from_static("identity");
        headers.entry(ACCEPT_ENCODING).or_insert(identity);
    } else if reads {
        // On other methods the header names the coding of the request's own body.
        let codings = HeaderValue::from_static(CODINGS);
        headers.entry(CONTENT_ENCODING).or_insert(codings);
    }
    request
}

// === impl Tail ===

#[cfg(feature = "compression")]
impl<B> Tail<B> {
    fn of(response: Response<B>) -> Response<Self> {
        let is_coded = response.headers().contains_key(CONTENT_ENCODING);
        response.map(|inner| Self {
            inner,
            is_coded,
            last: None,
        })
    }
}

#[cfg(feature = "compression")]
impl<B: Body<Data = Bytes>> Body for Tail<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        if let Some(last) = this.last.take() {
            return Poll::Ready(Some(Ok(Frame::data(last))));
        }
        let frame = ready!(this.inner.poll_frame(cx)?);
        let split = |mut data: Bytes| {
            if *this.is_coded && data.len() > 1 {
                *this.last = Some(data.split_off(data.len() - 1));
            }
            data
        };
        Poll::Ready(frame.map(|frame| Ok(frame.map_data(split))))
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The value of the header, as the service documents it.
#[cfg(feature = "compression")]
const CODINGS: &str = "br,gzip";

#[cfg(test)]
#[cfg(feature = "compression")]
mod tests;
