//! Asking for compressed bodies, and decoding what comes.

use std::pin::Pin;

use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, Entry, RANGE},
};
use http_body::Body;
use http_body_util::Either as EitherBody;
use tower::util::{Either, MapRequest, MapResponse};
use tower_http::decompression::{Decompression, DecompressionBody};

use crate::RequestBody;

/// Whether compressed bodies are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    Off,
    On,
}

/// One type for both, so that the body's type does not depend on a setting.
pub(crate) type Compressed<S, B> = Either<Decoded<S, B>, MapResponse<S, Plain<B>>>;

/// The body of either. Boxed, since from here on a response is moved from layer to layer.
pub(crate) type CompressedBody<B> = Pin<Box<EitherBody<DecompressionBody<B>, B>>>;

type Decoded<S, B> =
    MapRequest<MapResponse<Decompression<MapResponse<S, Change<B>>>, Show<B>>, Ask>;

type Show<B> = fn(Response<DecompressionBody<B>>) -> Response<CompressedBody<B>>;

type Plain<B> = fn(Response<B>) -> Response<CompressedBody<B>>;

/// What is done to a request before it is sent.
pub(crate) type Ask = fn(Request<RequestBody>) -> Request<RequestBody>;

/// What is done to the head of a response below the decoder.
pub(crate) type Change<B> = fn(Response<B>) -> Response<B>;

/// The coding of a part, while the decoder must not see it.
#[derive(Debug, Clone)]
struct Hidden(Vec<HeaderValue>);

// === impl Compression ===

impl Compression {
    pub(crate) fn around<S, B: Body>(self, inner: S) -> Compressed<S, B> {
        let (hide, show, ask): (Change<B>, Show<B>, Ask) = (hide, show, ask);
        match self {
            Self::On => {
                let decode = Decompression::new(MapResponse::new(inner, hide));
                // What another crate of the program turns on is no part of this client.
                let decode = decode.no_deflate().no_zstd();
                Either::Left(MapRequest::new(MapResponse::new(decode, show), ask))
            }
            // It asks for nothing then, and leaves alone what comes.
            Self::Off => Either::Right(MapResponse::new(inner, |response: Response<B>| {
                response.map(|body| Box::pin(EitherBody::Right(body)))
            })),
        }
    }
}

/// The standard `Accept-Encoding` is the decoder's own to add.
fn ask(mut request: Request<RequestBody>) -> Request<RequestBody> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let headers = request.headers_mut();
    if headers.contains_key(RANGE) {
        // RFC 9110, section 14.2: a range is of the bytes as they are coded, which nobody means.
        let identity = HeaderValue::from_static("identity");
        headers.entry(ACCEPT_ENCODING).or_insert(identity);
    } else if reads {
        // On any other method it says how the request's own body is coded.
        let contract = HeaderValue::from_static(CONTRACT);
        headers.entry(CONTENT_ENCODING).or_insert(contract);
    }
    request
}

/// A part of a coded body cannot be decoded alone.
fn hide<B>(mut response: Response<B>) -> Response<B> {
    if response.status() == StatusCode::PARTIAL_CONTENT
        && let Entry::Occupied(coding) = response.headers_mut().entry(CONTENT_ENCODING)
    {
        let (_, coding) = coding.remove_entry_mult();
        let coding = Hidden(coding.collect());
        response.extensions_mut().insert(coding);
    }
    response
}

/// Its caller has to know of it.
fn show<B: Body>(mut response: Response<DecompressionBody<B>>) -> Response<CompressedBody<B>> {
    if let Some(Hidden(coding)) = response.extensions_mut().remove() {
        for coding in coding {
            response.headers_mut().append(CONTENT_ENCODING, coding);
        }
    }
    response.map(|body| Box::pin(EitherBody::Left(body)))
}

/// Contract, "Data endpoints": the optional request header, word for word.
const CONTRACT: &str = "br,gzip";

#[cfg(test)]
mod tests;
