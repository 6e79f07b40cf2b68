//! A whole answer, as what data it is: neither another success nor coded, nor what may have been cut.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING},
};
use tower_tds::{Call, Error, Kind, Response};

/// Asks for data as it is. Whoever says nothing has any coding (RFC 9110, section 12.5.3).
pub(crate) fn plain(call: Call) -> Call {
    call.header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
}

/// All of a 200 for `target`.
pub(crate) async fn whole(response: Response, target: &str) -> Result<Bytes, Error> {
    let refused = |kind, what: &str| {
        named(
            Error::new(kind, what).with_sent(tower_tds::layers::errors::Sent::Answered),
            target,
        )
    };
    let status = response.status();
    if status != StatusCode::OK {
        let other = format!("a success, but no 200 (status {status})");
        let other = refused(Kind::UnexpectedAnswer, &other);
        return Err(other.with_advice("see whether the path is one of data"));
    }
    if is_coded(response.headers()) {
        return Err(refused(Kind::Malformed, CODED));
    }
    let body = response.into_http().into_body();
    if !body.is_verifiable() {
        return Err(refused(Kind::Truncated, OPEN));
    }
    body.bytes().await
}

/// Whether a body is still coded, which nobody has asked for or could not be undone.
pub(crate) fn is_coded(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// The error, with the request that it is about, unless it names that already.
pub(crate) fn named(error: Error, target: &str) -> Error {
    match target.parse() {
        Ok(uri) if error.uri().is_none() => error.with_request(Method::GET, &uri),
        Ok(_) | Err(_) => error,
    }
}

pub(crate) const CODED: &str = "the answer is in a coding that was not asked for";

pub(crate) const OPEN: &str = "nothing says how long it is, so that it may have been cut";
