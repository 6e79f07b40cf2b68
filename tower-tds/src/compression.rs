//! Asking for compressed bodies, and decoding what comes.

use http::{HeaderValue, Request, header::CONTENT_ENCODING};
use tower::util::MapRequest;
use tower_http::decompression::Decompression;

use crate::RequestBody;

/// Whether compressed bodies are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    Off,
    On,
}

/// One type for both, so that the body's type does not depend on a setting.
pub(crate) type Compressed<S> = MapRequest<Decompression<S>, Ask>;

/// What is done to a request before it is sent.
pub(crate) type Ask = fn(Request<RequestBody>) -> Request<RequestBody>;

// === impl Compression ===

impl Compression {
    pub(crate) fn around<S>(self, inner: S) -> Compressed<S> {
        let decode = Decompression::new(inner);
        match self {
            Self::On => MapRequest::new(decode, ask),
            // It asks for nothing then, and leaves alone what comes.
            Self::Off => MapRequest::new(decode.no_br().no_gzip(), std::convert::identity),
        }
    }
}

/// The standard `Accept-Encoding` is the decoder's own to add.
fn ask(mut request: Request<RequestBody>) -> Request<RequestBody> {
    let headers = request.headers_mut();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(CONTRACT));
    request
}

/// Contract, "Data endpoints": the optional request header, word for word.
const CONTRACT: &str = "br,gzip";

#[cfg(test)]
mod tests;
