//! The class that a head has, whatever the body says.

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};

use super::wanted::Wanted;
use crate::kind::Kind;

/// What the head means, or `None` for a success.
///
/// A status that nobody registered is read as the first of its class (RFC 9110, section 15).
pub(super) fn kind(status: StatusCode, headers: &HeaderMap, wanted: Wanted) -> Option<Kind> {
    if is_success(status) {
        return is_page(status, headers, wanted).then_some(Kind::UnexpectedContent);
    }
    let kind = match status.as_u16() {
        300..=399 => Kind::UnexpectedRedirect,
        401 => Kind::Unauthorized,
        403 => Kind::Forbidden,
        404 | 410 => Kind::NotFound,
        407 => Kind::Proxy,
        // This one and 423 are the service's own, and mean nothing like it in RFC 9110 and RFC 4918.
        416 if !wanted.part => Kind::ConnectionLimit,
        // `bytes */1234` (RFC 9110, section 15.5.17): then it is about the range for sure.
        416 if headers.contains_key(CONTENT_RANGE) => Kind::RangeNotSatisfiable,
        416 => Kind::RangeUnclear,
        421 => Kind::Misdirected,
        423 if wanted.lock => Kind::Locked,
        423 => Kind::RateExceeded,
        425 => Kind::TooEarly,
        429 => Kind::Throttled,
        408 | 504 | 522 | 524 => Kind::ServerTimeout,
        511 => Kind::CaptivePortal,
        // Not implemented, wrong version, misconfigured, out of room, loop, extension.
        501 | 505..=508 | 510 => Kind::Rejected,
        500..=599 => Kind::Unavailable,
        _ => Kind::Rejected,
    };
    Some(kind)
}

/// Whether the caller gets the answer as it is: 2xx, what a cache asks for, and the upgrade that
/// was asked for (RFC 9110, section 15.2.2), which is the connection's own from here on.
#[inline]
pub(crate) fn is_success(status: StatusCode) -> bool {
    status.is_success()
        || status == StatusCode::NOT_MODIFIED
        || status == StatusCode::SWITCHING_PROTOCOLS
}

/// Whether a success has a page for people where only data is accepted. One without content has
/// none, whatever type its head names.
#[inline]
pub(super) fn is_page(status: StatusCode, headers: &HeaderMap, wanted: Wanted) -> bool {
    wanted.data && status.is_success() && is_html(headers) && !is_empty(status, headers)
}

fn is_empty(status: StatusCode, headers: &HeaderMap) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT)
        || headers
            .get(CONTENT_LENGTH)
            .is_some_and(|length| length == "0")
}

fn is_html(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE) else {
        return false;
    };
    let kind = kind.as_bytes();
    let html = kind
        .get(..9)
        .is_some_and(|start| start.eq_ignore_ascii_case(b"text/html"));
    html && matches!(kind.get(9), None | Some(b';' | b' ' | b'\t'))
}

/// Whether an error body is a lock's: the conditions of RFC 4918, section 16, that a 423 comes with.
pub(super) fn is_lock(body: &[u8]) -> bool {
    let has = |name: &[u8]| body.windows(name.len()).any(|part| part == name);
    has(b"lock-token-submitted") || has(b"no-conflicting-lock")
}
