//! Classification of responses: a table of statuses, refined by hints and texts.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::sync::Arc;

use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION, RANGE,
};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri};
use tower_tds_outcome::{Cause, Outcome, Resend, Secrets, Sent, place, retry_after, said};

use crate::clock;
use crate::error::ErrorResponse;
use crate::error::{Error, Facts};
use crate::kind::Kind;

pub(crate) mod service;

/// Facts about a request that its error needs.
#[derive(Clone, Default)]
pub(crate) struct RequestFacts {
    /// Whether it has a `Range`, which can be the reason for a 416.
    has_range: bool,
    /// Whether it accepts only JSON or XML, so that an HTML page is an error.
    is_data_only: bool,
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
    let request = RequestFacts::of(request, None);
    let mut head = Response::new(());
    *head.status_mut() = status;
    *head.headers_mut() = headers.clone();
    let Some(kind) = by_head(&request, &head) else {
        return Ok(());
    };
    let body = body.as_ref();
    let kept = body.get(..MOST_BYTES).unwrap_or(body);
    let is_cut = kept.len() < body.len();
    let (head, ()) = head.into_parts();
    Err(error_of(&request, kind, head, kept.to_vec(), is_cut))
}

/// Returns the error of a response, whose head is of this `kind`.
pub(crate) fn error_of(
    request: &RequestFacts,
    kind: Kind,
    head: Parts,
    body: Vec<u8>,
    is_cut: bool,
) -> Error {
    let (status, headers, own) = (head.status, head.headers, head.extensions.get::<Outcome>());
    let kind = match kind {
        Kind::Throttled if has_long_window(&headers) => Kind::QuotaExhausted,
        kind => kind,
    };
    let wait = match own {
        Some(Outcome::QuotaExceeded(wait)) => *wait,
        _ => retry_after(status, &headers, clock::wall()),
    };
    let said = said(&headers, &body);
    let meant = match kind {
        // A gRPC refusal has the status of a success.
        Kind::InvalidToken => StatusCode::UNAUTHORIZED,
        _ => status,
    };
    // A challenge comes before the body, which may be cut, generic or translated.
    let refined = said.iter().rev().find_map(|text| {
        let kind = refine(meant, text)?;
        Some((kind, Some(text.clone())))
    });
    let (kind, message) = refined.unwrap_or_else(|| (kind, said.into_iter().next()));

    // Without a `Content-Range` it may be about connections as well.
    let is_unclear = kind == Kind::Rejected
        && own.is_none()
        && status == StatusCode::RANGE_NOT_SATISFIABLE
        && !headers.contains_key(CONTENT_RANGE);
    let mut facts = Facts::new(kind);
    let next = match status.as_u16() {
        101 => Some(NO_UPGRADE),
        416 if is_unclear => Some(RANGE_OR_CONNECTIONS),
        431 => Some(HEAD_TOO_LARGE),
        400 if message.as_deref().is_some_and(is_too_large) => Some(HEAD_TOO_LARGE),
        _ => None,
    };
    facts.cause.next = next.map(Into::into);
    // Even a 407 counts as answered, because the service may send one itself. The 407 of a proxy's
    // tunnel is a connect error, and does not reach this code.
    facts.cause.sent = Sent::Answered;
    facts.cause.secrets = request.secrets();
    facts.cause.wait = wait;
    // Whatever the refusal, the service expects another answer after this wait.
    let is_hinted = wait.is_some() && status.is_client_error();
    facts.cause.resend = (is_hinted || is_unclear).then_some(Resend::Paid);
    let location = text_of(&headers, LOCATION.as_str()).filter(|_| status.is_redirection());
    facts.response = Some(Arc::new(ErrorResponse {
        status,
        message: message.and_then(|message| facts.shown(&message)),
        request_id: request_id(&headers).and_then(|id| facts.shown(id)),
        location: location.and_then(target).and_then(|it| facts.shown(&it)),
        headers,
        body: body.into(),
        is_cut,
    }));
    facts.set_kind(kind);
    Error::build(facts, None)
}

/// Returns the kind of a response head, or `None` for a success. The [`Outcome`] decides, which may be
/// in the response's extensions, and where it is `Other`, the status does.
///
/// An unregistered status is read like the first one of its class (RFC 9110, section 15).
#[inline]
pub(crate) fn by_head<B>(request: &RequestFacts, response: &Response<B>) -> Option<Kind> {
    let status = response.status();
    let has_own = response.extensions().get::<Outcome>().is_some();
    Some(match Outcome::of_response(response) {
        Outcome::Accepted if has_own => return None,
        // Most often about its range, so it slows no other request: if it was about connections, the
        // next request without a range is a `ConnectionLimit`.
        Outcome::ConnectionsExceeded if !has_own && request.has_range => Kind::Rejected,
        Outcome::Accepted | Outcome::Other | Outcome::Lost | Outcome::Unsent
            if is_success(status) =>
        {
            let is_page = request.is_data_only && is_page(status, response.headers());
            return is_page.then_some(Kind::UnexpectedResponse);
        }
        Outcome::Other | Outcome::Lost | Outcome::Unsent => match status.as_u16() {
            // 101 is an upgrade, which these layers do not support.
            101 | 300..=399 | 511 => Kind::UnexpectedResponse,
            404 | 410 => Kind::NotFound,
            408 | 421 | 425 => Kind::Unavailable,
            // A retry does not change what the server can process.
            501 | 505..=508 | 510 => Kind::Rejected,
            // Section 15 of RFC 9110: an invalid status is a server's error.
            500..=999 => Kind::Unavailable,
            _ => Kind::Rejected,
        },
        outcome => Kind::of(&Cause::new(outcome)),
    })
}

/// Whether the status is a success: 2xx or 304. A success may still be a [page](is_page).
#[inline]
pub(crate) fn is_success(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::NOT_MODIFIED
}

/// Whether a success is an HTML page in place of data. A response without content is never a page.
#[inline]
fn is_page(status: StatusCode, headers: &HeaderMap) -> bool {
    status.is_success() && is_html(headers) && !is_empty(status, headers)
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

/// Returns the kind that `text` refines `status` to, if it is known.
fn refine(status: StatusCode, text: &str) -> Option<Kind> {
    let is_unauthorized = status == StatusCode::UNAUTHORIZED;
    match Outcome::of_text(text)? {
        // A new token would not help, and would put load on an identity server that is down.
        Outcome::Other if is_unauthorized => Some(Kind::Unavailable),
        // The role plugin responds 403 by default; this service has configured 401.
        Outcome::RoleMissing if is_unauthorized || status == StatusCode::FORBIDDEN => {
            Some(Kind::MissingRole)
        }
        Outcome::NoHeader if is_unauthorized => Some(Kind::MissingCredentials),
        Outcome::TokenRefused if is_unauthorized => Some(Kind::InvalidToken),
        _ => None,
    }
}

/// Whether a server or gateway finds the head of the request too large.
fn is_too_large(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    TOO_LARGE.iter().any(|known| text.contains(known))
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

/// Returns the address to which a redirect leads, without its query. If it is invalid it is not shown.
fn target(location: &str) -> Option<String> {
    match location.strip_prefix("//") {
        // Without a scheme the host would be parsed as a path.
        Some(_) => Some(place(&format!("http:{location}").parse().ok()?).replacen("http:", "", 1)),
        None => Some(place(&location.parse::<Uri>().ok()?)),
    }
}

fn request_id(headers: &HeaderMap) -> Option<&str> {
    let mut names = ["x-kong-request-id", "x-request-id", "x-correlation-id"].iter();
    names.find_map(|name| text_of(headers, name))
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
            redaction: secrets.cloned().map(Redaction::Shared),
            ..Self::default()
        };
        let mut data = None;
        for (name, value) in headers {
            if *name == ACCEPT {
                // Most requests send this value, so it is compared first.
                let is_data = value == "application/json" || is_data(value.as_bytes());
                data = Some(data != Some(false) && is_data);
            } else if *name == AUTHORIZATION && request.redaction.is_none() {
                request.redaction = Some(Redaction::Own(value.clone()));
            }
            request.has_range |= *name == RANGE;
        }
        request.is_data_only = data == Some(true);
        request
    }

    /// Returns the secrets that are known.
    #[cold]
    pub(crate) fn secrets(&self) -> Option<Secrets> {
        match self.redaction.as_ref()? {
            Redaction::Shared(secrets) => Some(secrets.clone()),
            Redaction::Own(header) => {
                let secrets = Secrets::default();
                secrets.add("authorization", header);
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

const RANGE_OR_CONNECTIONS: &str = "check the range, or share one client";

const HEAD_TOO_LARGE: &str = "send fewer or shorter headers; most often the token is the longest: have fewer roles or scopes \
                              put into it, or have the gateway accept larger headers";

/// Longest part of an error body that is read. The largest known error page of a gateway has 4 KiB.
/// Beyond this bound, reading on to reuse the connection costs more than a new one.
pub(crate) const MOST_BYTES: usize = 16 * 1024;

/// Texts of nginx and Kong, Envoy, Apache, Tomcat, and IIS, in this order.
const TOO_LARGE: [&str; 5] = [
    "request header or cookie too large",
    "request header fields too large",
    "size of a request header field exceeds",
    "request header is too large",
    "size of the request headers is too long",
];

#[cfg(test)]
mod tests;
