//! Classification of answers: a table of statuses, refined by texts.

use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION, RETRY_AFTER,
};
use http::{HeaderMap, StatusCode};

use self::asked::Asked;
use self::hint::Hint;
use crate::clock;
use crate::error::redact::{self, escaped, shown};
use crate::error::{Error, Facts};
use crate::kind::{Kind, Sent};

pub(crate) mod asked;
mod challenge;
pub(crate) mod future;
mod hint;
mod message;
mod refusals;
pub(crate) mod service;
pub(crate) mod transport;

/// Judges an answer that was read by other means than [`Classify`](crate::Classify): a success, 2xx,
/// 304 and an upgrade (101) that was asked for, is `Ok`.
///
/// `asked` is what the request asked for; `headers` are the answer's. `body` is what was read of it,
/// complete or not. A coded body gives no message: undo its coding first.
///
/// # Errors
///
/// The [`Error`] that the answer means. It has no method, URI or source.
///
/// # Examples
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use tower_tds_errors::{Asked, Kind, classify};
///
/// let (asked, headers) = (Asked::default(), HeaderMap::new());
/// assert!(classify(asked, StatusCode::OK, &headers, "[]").is_ok());
///
/// let error = classify(asked, StatusCode::UNAUTHORIZED, &headers, "invalid token").unwrap_err();
/// assert_eq!(error.kind(), Kind::InvalidToken);
/// assert_eq!(error.message(), Some("invalid token"));
/// ```
pub fn classify(
    asked: Asked,
    status: StatusCode,
    headers: &HeaderMap,
    body: impl AsRef<[u8]>,
) -> Result<(), Error> {
    let error = error_of(asked, status, headers, body.as_ref());
    error.map_or(Ok(()), Err)
}

/// What an answer means, or `None` for a success: with its message, the wait it asks for, and the id
/// to quote.
pub(crate) fn error_of(
    asked: Asked,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> Option<Error> {
    let kind = by_head(status, headers, asked)?;
    let Hint { wait, is_long } = hint::hint(status, headers, clock::wall);
    let kind = if kind == Kind::Throttled && is_long {
        Kind::QuotaExhausted
    } else if kind == Kind::RateExceeded && is_lock(body) {
        Kind::Rejected
    } else {
        kind
    };
    let coding = coding(headers);
    let text = message::text(body).filter(|text| coding.is_none() || is_plain(text));
    let said = text.map_or_else(Vec::new, message::candidates);
    // The header comes whole where the body may be cut, generic or translated.
    let challenges = challenge::errors(headers);
    let refined = challenges.iter().chain(&said).find_map(|text| {
        let kind = refusals::refine(status, text)?;
        Some((kind, Some(text.clone())))
    });
    let (kind, message) =
        refined.unwrap_or_else(|| (kind, said.into_iter().chain(challenges).next()));

    let mut facts = Facts::new(kind);
    // A proxy's own refusal (407) too: of a tunnel no such answer comes, and a service may say the same.
    facts.sent = Sent::Answered;
    facts.status = Some(status);
    facts.message = message.and_then(|message| {
        let known = refusals::is_known(&message);
        if known {
            Some(escaped(message.trim()))
        } else {
            shown(&message)
        }
    });
    facts.coding = coding
        .filter(|_| text.is_none() && !body.is_empty())
        .and_then(shown);
    facts.request_id = request_id(headers);
    // No more than is read of the wire: an error may be held through a long wait.
    let kept = body.get(..future::MOST_BYTES).unwrap_or(body);
    facts.is_cut = kept.len() < body.len();
    facts.body = kept.to_vec().into();
    if status.is_redirection() {
        facts.location = text_of(headers, LOCATION.as_str()).and_then(redact::reference);
    }
    if let Some(wait) = wait {
        facts.set_retry_after(wait);
    }
    facts.set_kind(kind);
    Some(Error::build(facts, None))
}

/// What the head means, or `None` for a success.
///
/// A status that nobody registered is read as the first of its class (RFC 9110, section 15).
fn by_head(status: StatusCode, headers: &HeaderMap, asked: Asked) -> Option<Kind> {
    if is_success(status) {
        return is_unasked(status, headers, asked).then_some(Kind::UnexpectedAnswer);
    }
    let ranged = headers.contains_key(CONTENT_RANGE);
    Some(match status.as_u16() {
        300..=399 | 511 => Kind::UnexpectedAnswer,
        401 => Kind::Unauthorized,
        404 | 410 => Kind::NotFound,
        408 | 425 => Kind::Unavailable,
        // For a while only, says its hint (RFC 9110, section 15.5.14).
        413 if headers.contains_key(RETRY_AFTER) => Kind::Unavailable,
        // This one and 423 are the service's own, and mean nothing like it in RFC 9110 and RFC 4918.
        416 if !asked.part => Kind::ConnectionLimit,
        416 if !ranged => Kind::RangeUnclear,
        421 => Kind::Misdirected,
        423 if !asked.lock => Kind::RateExceeded,
        429 => Kind::Throttled,
        // Not implemented, wrong version, misconfigured, out of room, loop, extension.
        501 | 505..=508 | 510 => Kind::Rejected,
        500..=599 => Kind::Unavailable,
        _ => Kind::Rejected,
    })
}

/// Whether the caller gets the answer as it is, if it [is asked for](is_unasked): 2xx, what a cache asks for, and an
/// upgrade (RFC 9110, section 15.2.2), which is the connection's own from here on.
#[inline]
pub(crate) fn is_success(status: StatusCode) -> bool {
    status.is_success()
        || status == StatusCode::NOT_MODIFIED
        || status == StatusCode::SWITCHING_PROTOCOLS
}

/// Whether a success is none for who asked: an upgrade that was not asked for, or a page for people where only
/// data is accepted. One without content has none, whatever type its head names.
#[inline]
pub(crate) fn is_unasked(status: StatusCode, headers: &HeaderMap, asked: Asked) -> bool {
    let is_page =
        || asked.data && status.is_success() && is_html(headers) && !is_empty(status, headers);
    (status == StatusCode::SWITCHING_PROTOCOLS && !asked.upgrade) || is_page()
}

fn is_empty(status: StatusCode, headers: &HeaderMap) -> bool {
    let length = headers.get(CONTENT_LENGTH);
    matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT)
        || length.is_some_and(|length| length == "0")
}

fn is_html(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], |kind| kind.as_bytes());
    let start = kind.get(..9);
    start.is_some_and(|start| start.eq_ignore_ascii_case(b"text/html"))
        && matches!(kind.get(9), None | Some(b';' | b' ' | b'\t'))
}

/// Whether an error body is a lock's: the conditions of RFC 4918, section 16, that a 423 comes with.
fn is_lock(body: &[u8]) -> bool {
    let has = |name: &[u8]| body.windows(name.len()).any(|part| part == name);
    has(b"lock-token-submitted") || has(b"no-conflicting-lock")
}

/// The first coding that the headers declare for the body.
fn coding(headers: &HeaderMap) -> Option<&str> {
    let declared = headers.get_all(CONTENT_ENCODING).iter();
    let declared = declared.filter_map(|value| value.to_str().ok());
    let mut codings = declared.flat_map(|value| value.split(',')).map(str::trim);
    codings.find(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"))
}

/// Whether a body is text although a coding is declared: servers declare codings that they did not apply. A coded
/// body has control characters.
fn is_plain(text: &str) -> bool {
    !text.contains(|c: char| c.is_control() && !c.is_whitespace())
}

fn request_id(headers: &HeaderMap) -> Option<Box<str>> {
    let names = ["x-kong-request-id", "x-request-id", "x-correlation-id"];
    names
        .iter()
        .find_map(|name| redact::id(text_of(headers, name)?))
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests;
