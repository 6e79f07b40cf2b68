//! Classification of responses: a table of statuses, refined by hints and texts.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RANGE, RETRY_AFTER,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use tower_tds_outcome::{Outcome, Secrets, retry_after};

use crate::clock;
use crate::error::redact;
use crate::error::{Error, Facts};
use crate::kind::{Kind, Sent};

mod message;
pub(crate) mod service;

/// Properties of a request that change the meaning of its response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected {
    /// Whether the request has a `Range`, which can be the reason for a 416.
    has_range: bool,
    /// Whether the request accepts only JSON or XML, so that an HTML page is an error.
    is_data_only: bool,
    /// Size of the request's `Authorization`, which can make its head too large; 0 without one.
    authorization: u32,
}

/// Facts about a request that its error needs.
#[derive(Clone, Default)]
pub(crate) struct RequestFacts {
    pub(crate) expected: Expected,
    redaction: Option<Redaction>,
}

/// Secrets that no text of the service or of the HTTP client may show.
#[derive(Clone)]
enum Redaction {
    /// The handle that the layer was given.
    Shared(Secrets),
    /// The request's own `Authorization`, if the layer was given no handle.
    Own(HeaderValue),
}

/// Classifies a response that you read without [`Classify`](crate::Classify).
///
/// Returns `Ok` for a 304, and for a 2xx, unless that is an HTML page in place of the JSON or XML
/// that the request accepts, or the head of a gRPC response that refuses the token (`grpc-status` 16)
/// or reports a missing role (7).
///
/// If the head of the request was too large (431, or a 400 whose text reports it), the advice names
/// the size of your token.
///
/// Pass the headers of the request as well: `Range` and `Accept` change the meaning of a response,
/// and the value of `Authorization` can only be kept out of the texts if it is known. Decompress
/// the body first, because the message is read from it.
///
/// # Errors
///
/// Returns the [`Error`] of the response, which has no method, URI or source.
///
/// # Examples
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use tower_tds_errors::{Kind, classify};
///
/// let (sent, headers) = (HeaderMap::new(), HeaderMap::new());
/// assert!(classify(&sent, StatusCode::OK, &headers, "[]").is_ok());
///
/// let error = classify(&sent, StatusCode::UNAUTHORIZED, &headers, "invalid token").unwrap_err();
/// assert_eq!(error.kind(), Kind::InvalidToken);
/// assert_eq!(error.message(), Some("invalid token"));
/// ```
pub fn classify(
    request: &HeaderMap,
    status: StatusCode,
    headers: &HeaderMap,
    body: impl AsRef<[u8]>,
) -> Result<(), Error> {
    let error = error_of(
        &RequestFacts::of(request, None),
        None,
        status,
        headers,
        body.as_ref(),
    );
    error.map_or(Ok(()), Err)
}

/// Returns the error of a response, or `None` for a success. If the response has an outcome of its
/// `own` in its extensions, that decides, and not its status.
pub(crate) fn error_of(
    request: &RequestFacts,
    own: Option<Outcome>,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> Option<Error> {
    let wait = match own {
        Some(Outcome::QuotaExceeded(wait)) => wait,
        _ => hint(status, headers, clock::wall),
    };
    let kind = match by_head(own, status, headers, request.expected)? {
        // A program should stop its job rather than sleep for more than a minute, so this is
        // another kind.
        Kind::Throttled if has_long_window(headers) || wait > Some(MINUTE) => Kind::QuotaExhausted,
        kind => kind,
    };
    let text = message::text(body);
    let said = text.map_or_else(Vec::new, message::candidates);
    // Read before the body, which may be cut, generic or translated.
    let challenges = message::challenges(headers);
    let meant = match kind {
        // A gRPC refusal has the status of a success.
        Kind::Unauthorized => StatusCode::UNAUTHORIZED,
        Kind::MissingRole if is_success(status) => StatusCode::FORBIDDEN,
        _ => status,
    };
    let refined = challenges.iter().chain(&said).find_map(|text| {
        let kind = message::refine(meant, text)?;
        Some((kind, Some(text.clone())))
    });
    let (kind, message) =
        refined.unwrap_or_else(|| (kind, said.into_iter().chain(challenges).next()));

    let mut facts = Facts::new(kind);
    facts.next = match status {
        StatusCode::SWITCHING_PROTOCOLS => Some(NO_UPGRADE.into()),
        _ => too_large(status, message.as_deref(), request),
    };
    // Even a 407 counts as answered, because the service may send one itself. The 407 of a proxy's
    // tunnel is a connect error, and does not reach this code.
    facts.sent = Sent::Answered;
    facts.status = Some(status);
    facts.secrets = request.secrets();
    facts.message = message.and_then(|message| facts.shown(&message));
    facts.request_id = request_id(headers);
    // The same bound as for a read from the connection, because an error may be kept for a long
    // wait.
    let kept = body.get(..MOST_BYTES).unwrap_or(body);
    facts.body = kept.to_vec().into();
    facts.is_cut = kept.len() < body.len();
    facts.headers = Some(headers.clone());
    if status.is_redirection() {
        facts.location = text_of(headers, LOCATION.as_str()).and_then(redact::reference);
    }
    facts.retry_after = wait;
    facts.set_kind(kind);
    Some(Error::build(facts, None))
}

/// Returns the kind of a response head, or `None` for a success. The [`Outcome`] decides, and where
/// it is `Other`, the status does.
///
/// An unregistered status is read like the first one of its class (RFC 9110, section 15).
fn by_head(
    own: Option<Outcome>,
    status: StatusCode,
    headers: &HeaderMap,
    expected: Expected,
) -> Option<Kind> {
    let outcome = own.unwrap_or_else(|| Outcome::of_head(status, headers, clock::wall));
    Some(match outcome {
        Outcome::Accepted if own.is_some() => return None,
        Outcome::TokenRefused => Kind::Unauthorized,
        Outcome::RoleMissing => Kind::MissingRole,
        Outcome::NoHeader => Kind::MissingCredentials,
        Outcome::RateExceeded => Kind::RateExceeded,
        Outcome::ConnectionsExceeded if expected.has_range => Kind::RangeUnclear,
        Outcome::ConnectionsExceeded => Kind::ConnectionLimit,
        Outcome::QuotaExceeded(_) => Kind::Throttled,
        _ if is_success(status) => {
            return is_page(status, headers, expected).then_some(Kind::UnexpectedAnswer);
        }
        _ => match status.as_u16() {
            // 101 is an upgrade, which these layers do not support.
            101 | 300..=399 | 511 => Kind::UnexpectedAnswer,
            404 | 410 => Kind::NotFound,
            408 | 425 => Kind::Unavailable,
            // A hint means that the condition is temporary (RFC 9110, section 15.5.14).
            413 if headers.contains_key(RETRY_AFTER) => Kind::Unavailable,
            421 => Kind::Misdirected,
            // A retry does not change what the server can process.
            501 | 505..=508 | 510 => Kind::Rejected,
            // Section 15 of RFC 9110: an invalid status is a server's error.
            500..=999 => Kind::Unavailable,
            _ => Kind::Rejected,
        },
    })
}

/// Whether the status is a success: 2xx or 304. A success may still be a [page](is_page).
#[inline]
pub(crate) fn is_success(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::NOT_MODIFIED
}

/// Whether a success is an HTML page in place of data. A response without content is never a page.
#[inline]
pub(crate) fn is_page(status: StatusCode, headers: &HeaderMap, expected: Expected) -> bool {
    expected.is_data_only && status.is_success() && is_html(headers) && !is_empty(status, headers)
}

/// Whether the head refuses the token of a gRPC call, whose HTTP status is then a success.
#[inline]
pub(crate) fn is_grpc_refusal(status: StatusCode, headers: &HeaderMap) -> bool {
    let outcome = Outcome::of_head(status, headers, clock::wall);
    matches!(outcome, Outcome::TokenRefused | Outcome::RoleMissing)
}

/// Returns the advice if the head of the request was too large. Usually the token is its largest
/// part.
fn too_large(
    status: StatusCode,
    message: Option<&str>,
    request: &RequestFacts,
) -> Option<Cow<'static, str>> {
    match status.as_u16() {
        431 => {}
        400 if message.is_some_and(message::is_too_large) => {}
        _ => return None,
    }
    Some(match request.expected.authorization {
        0 => "send fewer or shorter headers".into(),
        size => format!(
            "the Authorization header with the token has {size} bytes: have fewer roles or scopes put \
             into it, or have the gateway accept larger headers"
        )
        .into(),
    })
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

/// Returns the least wait before another attempt: `Retry-After`, or for a 429 the reset of Kong's
/// limit.
///
/// Kong sends `RateLimit-Remaining`, `RateLimit-Reset` and `X-RateLimit-Remaining-Day` with every
/// status. They are a reason to wait only if the limit caused the response.
fn hint(
    status: StatusCode,
    headers: &HeaderMap,
    wall: impl Fn() -> SystemTime,
) -> Option<Duration> {
    let is_asked = status == StatusCode::TOO_MANY_REQUESTS || headers.contains_key(RETRY_AFTER);
    is_asked.then(|| retry_after(headers, wall())).flatten()
}

/// Whether Kong reports that no call is left in a window longer than a minute.
fn has_long_window(headers: &HeaderMap) -> bool {
    headers.iter().any(|(name, value)| {
        let window = name.as_str().strip_prefix("x-ratelimit-remaining-");
        // Kong may put the name of a limit before that of its window.
        let window = window.and_then(|window| window.rsplit('-').next());
        matches!(window, Some("hour" | "day" | "month" | "year")) && value.as_bytes() == b"0"
    })
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

// === impl RequestFacts ===

impl RequestFacts {
    /// Reads the headers of a request.
    #[inline]
    pub(crate) fn of(headers: &HeaderMap, secrets: Option<&Secrets>) -> Self {
        // One pass over the few headers of a request is cheaper than several look-ups, which hash.
        let mut request = Self {
            redaction: secrets.map(|secrets| Redaction::Shared(secrets.clone())),
            ..Self::default()
        };
        let mut data = None;
        for (name, value) in headers {
            if *name == ACCEPT {
                // Most requests send this value, so it is compared first.
                let is_data = value == "application/json" || is_data(value.as_bytes());
                data = Some(data != Some(false) && is_data);
            } else if *name == AUTHORIZATION {
                request.expected.authorization = u32::try_from(value.len()).unwrap_or(u32::MAX);
                if request.redaction.is_none() {
                    request.redaction = Some(Redaction::Own(value.clone()));
                }
            }
            request.expected.has_range |= *name == RANGE;
        }
        request.expected.is_data_only = data == Some(true);
        request
    }

    /// Returns the secrets that are known.
    #[cold]
    pub(crate) fn secrets(&self) -> Option<Secrets> {
        match self.redaction.as_ref()? {
            Redaction::Shared(secrets) => Some(secrets.clone()),
            Redaction::Own(header) => {
                let secrets = Secrets::default();
                secrets.add_authorization(header);
                Some(secrets)
            }
        }
    }
}

/// Whether only JSON or XML is accepted.
fn is_data(accepted: &[u8]) -> bool {
    let ends = |text: &[u8], name: &[u8]| {
        let start = text.len().checked_sub(name.len());
        let end = start.and_then(|start| text.get(start..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(name))
    };
    accepted.split(|byte| *byte == b',').all(|range| {
        let kind = range.split(|byte| *byte == b';').next().unwrap_or_default();
        let kind = kind.trim_ascii();
        (ends(kind, b"json") || ends(kind, b"xml")) && !ends(kind, b"html+xml")
    })
}

const NO_UPGRADE: &str =
    "send it with another client: these layers do not pass on an upgrade, such as a WebSocket";

/// Longest part of an error body that is read. The largest known error page of a gateway has 4 KiB.
/// Beyond this bound, reading on to reuse the connection costs more than a new one.
const MOST_BYTES: usize = 16 * 1024;

/// Longest window that is worth a wait. Kong's next longer window is an hour.
const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
