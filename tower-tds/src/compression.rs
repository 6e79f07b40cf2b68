//! Compressed bodies: two request headers allow them, and tower-http decodes them.

#[cfg(feature = "compression")]
mod tail;

use std::pin::Pin;

use http::Response;
use hyper::body::Incoming;
use tower::util::MapResponse;
use tower_tds_errors::{Guard, GuardBody};
#[cfg(feature = "compression")]
use {
    http::{
        HeaderValue, Method, Request,
        header::{ACCEPT_ENCODING, CONTENT_ENCODING, RANGE},
    },
    tower::util::MapRequest,
    tower_http::decompression::{Decompression, DecompressionBody},
};

#[cfg(feature = "compression")]
use self::tail::Tail;
#[cfg(feature = "compression")]
use crate::RequestBody;
use crate::transport::Http;

/// Whether compressed bodies are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    Off,
    #[cfg(feature = "compression")]
    On,
}

/// The client below the decoder. Its guard counts bytes on the wire.
pub(crate) type Wire = Guard<Http>;
pub(crate) type WireBody = GuardBody<Incoming>;

/// One type for both settings.
#[cfg(feature = "compression")]
pub(crate) type Decoded =
    MapRequest<MapResponse<Decompression<MapResponse<Wire, Tails>>, Boxes>, Ask>;
#[cfg(not(feature = "compression"))]
pub(crate) type Decoded = MapResponse<Wire, Boxes>;

#[cfg(feature = "compression")]
pub(crate) type DecodedBody = DecompressionBody<Tail<WireBody>>;
#[cfg(not(feature = "compression"))]
pub(crate) type DecodedBody = WireBody;

/// Boxed, because the body is large and each layer above moves the response.
pub(crate) type Boxes = fn(Response<DecodedBody>) -> Response<Pin<Box<DecodedBody>>>;

#[cfg(feature = "compression")]
pub(crate) type Tails = fn(Response<WireBody>) -> Response<Tail<WireBody>>;

#[cfg(feature = "compression")]
pub(crate) type Ask = fn(Request<RequestBody>) -> Request<RequestBody>;

// === impl Compression ===

impl Compression {
    #[cfg(feature = "compression")]
    pub(crate) fn around(self, wire: Wire) -> Decoded {
        // Another crate may turn on more codings of tower-http.
        let wire: MapResponse<_, Tails> = MapResponse::new(wire, Tail::of);
        let http = Decompression::new(wire).no_deflate().no_zstd();
        let (http, ask): (_, Ask) = match self {
            Self::On => (http, ask),
            Self::Off => (http.no_br().no_gzip(), std::convert::identity),
        };
        MapRequest::new(MapResponse::new(http, boxed), ask)
    }

    #[cfg(not(feature = "compression"))]
    pub(crate) fn around(self, wire: Wire) -> Decoded {
        MapResponse::new(wire, boxed)
    }
}

fn boxed(response: Response<DecodedBody>) -> Response<Pin<Box<DecodedBody>>> {
    response.map(Box::pin)
}

/// Adds the contract's header. tower-http adds the standard one.
#[cfg(feature = "compression")]
fn ask(mut request: Request<RequestBody>) -> Request<RequestBody> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let headers = request.headers_mut();
    if headers.contains_key(RANGE) {
        // RFC 9110, section 14.2: a range counts coded bytes, and a part of them cannot be decoded.
        let identity = HeaderValue::from_static("identity");
        headers.entry(ACCEPT_ENCODING).or_insert(identity);
    } else if reads {
        // On other methods the header names the coding of the request's own body.
        let contract = HeaderValue::from_static(CONTRACT);
        headers.entry(CONTENT_ENCODING).or_insert(contract);
    }
    request
}

/// Contract, "Data endpoints": the optional request header, word for word.
#[cfg(feature = "compression")]
const CONTRACT: &str = "br,gzip";

#[cfg(test)]
#[cfg(feature = "compression")]
mod tests;
