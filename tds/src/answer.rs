//! Whole responses: a 200 without a content coding, with all of its body.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING},
};
use tower_tds::{Call, Error, Kind, Response, layers::errors::Sent};

/// Requests data without a content coding. A request without the header allows any (RFC 9110,
/// section 12.5.3).
pub(crate) fn plain(call: Call) -> Call {
    call.header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
}

/// Reads the whole body of a 200 for `target`.
pub(crate) async fn whole(response: Response, target: &str) -> Result<Bytes, Error> {
    let status = response.status();
    if status != StatusCode::OK {
        let other = format!("status {status} instead of 200");
        let other = refused(Kind::UnexpectedAnswer, &other, target);
        return Err(other.with_advice("check that the path is a data endpoint"));
    }
    if is_coded(response.headers()) {
        return Err(refused(Kind::Malformed, CODED, target));
    }
    if !response.body().is_verifiable() {
        return Err(refused(Kind::Truncated, OPEN, target));
    }
    response.bytes().await
}

/// An error about an answered request.
pub(crate) fn refused(kind: Kind, what: &str, target: &str) -> Error {
    named(Error::new(kind, what).with_sent(Sent::Answered), target)
}

/// Whether the body has a content coding: the service ignored the request, or used two codings.
pub(crate) fn is_coded(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Adds the request to an error that does not name it.
pub(crate) fn named(error: Error, target: &str) -> Error {
    match target.parse() {
        Ok(uri) if error.uri().is_none() => error.with_request(Method::GET, &uri),
        Ok(_) | Err(_) => error,
    }
}

pub(crate) const CODED: &str = "the response has a content coding that was not requested";

pub(crate) const OPEN: &str =
    "the response has neither a length nor chunks, so it may be incomplete";
