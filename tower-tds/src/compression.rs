//! Asking for compressed bodies, and decoding what comes.

mod decoded;

use std::pin::Pin;

use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, RANGE},
};
use http_body::Body;
use http_body_util::Either as EitherBody;
use tower::{
    BoxError,
    util::{Either, MapRequest, MapResponse},
};

use self::decoded::{Coding, Decoded};
use crate::RequestBody;

/// Whether compressed bodies are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    Off,
    On,
}

/// One type for both, so that the body's type does not depend on a setting.
pub(crate) type Compressed<S, B> =
    Either<MapRequest<MapResponse<S, Read<B>>, Ask>, MapResponse<S, Read<B>>>;

/// The body of either. Boxed, since from here on a response is moved from layer to layer.
pub(crate) type CompressedBody<B> = Pin<Box<EitherBody<Decoded<B>, B>>>;

/// What is done to a request before it is sent.
pub(crate) type Ask = fn(Request<RequestBody>) -> Request<RequestBody>;

/// What is made of a response.
pub(crate) type Read<B> = fn(Response<B>) -> Response<CompressedBody<B>>;

// === impl Compression ===

impl Compression {
    pub(crate) fn around<S, B>(self, inner: S) -> Compressed<S, B>
    where
        B: Body<Error: Into<BoxError>>,
    {
        let (ask, decode, plain): (Ask, Read<B>, Read<B>) = (ask, decode, plain);
        match self {
            Self::On => Either::Left(MapRequest::new(MapResponse::new(inner, decode), ask)),
            // It asks for nothing then, and leaves alone what comes.
            Self::Off => Either::Right(MapResponse::new(inner, plain)),
        }
    }
}

/// By the standard header, and by the contract's.
fn ask(mut request: Request<RequestBody>) -> Request<RequestBody> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let headers = request.headers_mut();
    // RFC 9110, section 14.2: a range is of the bytes as they are coded, which nobody means.
    let is_part = headers.contains_key(RANGE);
    let accepted = if is_part { "identity" } else { CODINGS };
    let accepted = HeaderValue::from_static(accepted);
    headers.entry(ACCEPT_ENCODING).or_insert(accepted);
    if reads && !is_part {
        // On any other method it says how the request's own body is coded.
        let contract = HeaderValue::from_static(CONTRACT);
        headers.entry(CONTENT_ENCODING).or_insert(contract);
    }
    request
}

/// What has one coding that is known here is undone. A part of a coded body cannot be decoded alone: it stays as it is,
/// and says so.
fn decode<B>(mut response: Response<B>) -> Response<CompressedBody<B>>
where
    B: Body<Error: Into<BoxError>>,
{
    let mut codings = response.headers().get_all(CONTENT_ENCODING).iter();
    let coding = match (codings.next(), codings.next()) {
        (Some(one), None) => Coding::of(one.as_bytes()),
        _ => None,
    };
    let Some(coding) = coding.filter(|_| response.status() != StatusCode::PARTIAL_CONTENT) else {
        return plain(response);
    };
    response.headers_mut().remove(CONTENT_ENCODING);
    response.headers_mut().remove(CONTENT_LENGTH);
    response.map(|body| Box::pin(EitherBody::Left(Decoded::new(body, coding))))
}

fn plain<B: Body>(response: Response<B>) -> Response<CompressedBody<B>> {
    response.map(|body| Box::pin(EitherBody::Right(body)))
}

/// What is undone here.
const CODINGS: &str = "gzip,br";

/// Contract, "Data endpoints": the optional request header, word for word.
const CONTRACT: &str = "br,gzip";

#[cfg(test)]
mod tests;
