//! Outcomes of calls, and the table that reads them from statuses.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, Response, StatusCode, header};

use crate::{message::challenges, retry_after::retry_after};

#[cfg(test)]
mod tests;

/// The meaning of a call's result: for the token that it carried, and for the limits that count it.
///
/// | outcome of a call | read as |
/// |---|---|
/// | 2xx, 304 | `Accepted` |
/// | 401 | `TokenRefused`, whatever its text, unless `WWW-Authenticate` names one of the next two |
/// | 401 or 403, the challenge names a missing role or scope | `RoleMissing` |
/// | 401, the challenge names a missing header or token | `NoHeader` |
/// | gRPC with `grpc-status` 16 in the head | `TokenRefused` |
/// | gRPC with `grpc-status` 7 in the head | `RoleMissing` |
/// | gRPC with `grpc-status` 2, 4, 8, 13 or 14 in the head | `Other` |
/// | 416 without `Content-Range` (a 416 with that header refuses a range: RFC 9110, section 15.5.17) | `ConnectionsExceeded` |
/// | 423 | `RateExceeded` |
/// | 429 | `QuotaExceeded`, with the wait of [`retry_after`] |
/// | 504 | `GatewayTimedOut` |
/// | any other response | `Other` |
/// | an error that carries a [`Cause`](crate::Cause) | the outcome of the outermost one, or `Unsent` if that was not sent |
/// | any other error | `Lost`, unless a layer knows its type |
///
/// For 401, 416, 423 and 429 the table follows the public transport data service that these crates are written for. For
/// all other statuses it follows HTTP. If your service differs, put the outcome into the extensions of such responses,
/// below the layers that read it:
///
/// ```
/// use http::Response;
/// use tower_tds_outcome::Outcome;
///
/// /// For tower's `map_response`: this service refuses tokens with 498.
/// fn with_outcome<B>(mut response: Response<B>) -> Response<B> {
///     if response.status().as_u16() == 498 {
///         response.extensions_mut().insert(Outcome::TokenRefused);
///     }
///     response
/// }
/// # let response = Response::builder().status(498).body(()).expect("a valid status");
/// # assert_eq!(Outcome::of_response(&with_outcome(response)), Outcome::TokenRefused);
/// ```
///
/// The same goes for an error, whose outcome is in a [`Cause`](crate::Cause).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The service answered, and accepted the token.
    Accepted,
    /// The service refused the token as invalid. A new one may help.
    TokenRefused,
    /// The token is valid, but lacks a role.
    RoleMissing,
    /// The request arrived without its token, so something on the way removed it.
    NoHeader,
    /// This IP address sent more requests per second than it may.
    RateExceeded,
    /// This IP address holds more connections than it may.
    ConnectionsExceeded,
    /// The quota of the credential is used up. If the server named a wait, you find it here.
    QuotaExceeded(Option<Duration>),
    /// A gateway gave up waiting, while the service may still be working on the request.
    GatewayTimedOut,
    /// A limit gave no permit, so the request was not sent.
    NoPermit,
    /// There is no token at the moment, so the request was not sent.
    NoToken,
    /// There is no token until the credentials or the settings are changed, so the request was not sent.
    TokenDenied,
    /// The token may not go to the address of the request, which was not sent.
    AddressNotAllowed,
    /// The request never reached the service, so no limit counts it.
    Unsent,
    /// No answer came, though the request may have arrived.
    Lost,
    /// The service or a gateway answered in some other way. This shows nothing about the token, because a gateway may
    /// answer before it checks one.
    Other,
}

// === impl Outcome ===

impl Outcome {
    /// Reads a response: the outcome in its extensions, or else its head.
    #[inline]
    pub fn of_response<B>(response: &Response<B>) -> Self {
        if let Some(own) = response.extensions().get() {
            return *own;
        }
        let (status, headers) = (response.status(), response.headers());
        if !status.is_success() {
            return of_refusal(status, headers);
        }
        // A scan of a few names is faster than a hash.
        match headers.keys().any(|name| *name == GRPC_STATUS) {
            true => of_grpc(headers),
            false => Self::Accepted,
        }
    }

    /// Reads the text of a 401 or 403, from its body or from a parameter of its challenge: is the token invalid, or is
    /// a role or the header missing? `Other` means that the gateway could not check the token. Returns `None` for a
    /// text that is not known.
    #[must_use]
    pub fn of_text(text: &str) -> Option<Self> {
        let text = text.trim().trim_end_matches('.').to_ascii_lowercase();
        let known = BEGINNINGS.iter().find(|(known, _)| text.starts_with(known));
        match known {
            Some((_, outcome)) => Some(*outcome),
            None if is_missing(&text) => Some(Self::RoleMissing),
            // As in `accessing introspection endpoint (…) failed: timeout`, or its discovery document or keys.
            None if text.starts_with("accessing ") && text.contains(" failed") => Some(Self::Other),
            // These count only as the whole text, because a text about a failed check may contain them as well.
            None => DEAD.contains(&&*text).then_some(Self::TokenRefused),
        }
    }
}

/// Whether a text names a role, a scope or their claim as missing, as kong-plugin-jwt-keycloak does. A text
/// about missing claims in general shows another fault.
fn is_missing(text: &str) -> bool {
    let named = text.strip_prefix("missing required ");
    named.is_some_and(|named| {
        ["role", "scope", "azp", "resource_access"]
            .iter()
            .any(|it| named.contains(it))
    })
}

/// Reads the head of a gRPC response, whose status is 200 even if the call was refused. A call that is refused before
/// its handler runs has `grpc-status` in the head (trailers-only). Any other has it in the trailers, which are not
/// read.
#[cold]
fn of_grpc(headers: &HeaderMap) -> Outcome {
    let value = |name| headers.get(name).map_or(&b""[..], |value| value.as_bytes());
    let kind = value(header::CONTENT_TYPE);
    let start = kind.get(..GRPC.len()).unwrap_or_default();
    if !start.eq_ignore_ascii_case(GRPC) {
        return Outcome::Accepted;
    }
    match value(GRPC_STATUS).trim_ascii() {
        b"16" => Outcome::TokenRefused,
        b"7" => Outcome::RoleMissing,
        b"2" | b"4" | b"8" | b"13" | b"14" => Outcome::Other,
        _ => Outcome::Accepted,
    }
}

#[cold]
fn of_refusal(status: StatusCode, headers: &HeaderMap) -> Outcome {
    match status.as_u16() {
        304 => Outcome::Accepted,
        401 => challenged(headers).unwrap_or(Outcome::TokenRefused),
        403 if challenged(headers) == Some(Outcome::RoleMissing) => Outcome::RoleMissing,
        416 if !headers.contains_key(header::CONTENT_RANGE) => Outcome::ConnectionsExceeded,
        423 => Outcome::RateExceeded,
        429 => Outcome::QuotaExceeded(retry_after(status, headers, wall())),
        504 => Outcome::GatewayTimedOut,
        _ => Outcome::Other,
    }
}

/// Returns the outcome of the first known text of the challenges.
fn challenged(headers: &HeaderMap) -> Option<Outcome> {
    let read = |text: &String| Outcome::of_text(text).filter(|it| *it != Outcome::Other);
    challenges(headers).iter().find_map(read)
}

/// Returns the wall clock, from which a date counts if the response has no `Date` header.
fn wall() -> SystemTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "a date from a server has no meaning on a monotonic clock"
    )]
    SystemTime::now()
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

const GRPC: &[u8] = b"application/grpc";

/// Beginnings of texts about a missing header, as lua-resty-openidc and plugins of Kong send them; about a missing role, as
/// the contract of the service has it, and the error code of RFC 6750, section 3.1; and about a response of the
/// identity server that the gateway cannot use.
const BEGINNINGS: [(&str, Outcome); 7] = [
    ("no authorization header found", Outcome::NoHeader),
    (
        "no bearer authorization header value found",
        Outcome::NoHeader,
    ),
    ("no bearer access token value found", Outcome::NoHeader),
    (
        "access token does not have the required scope/role",
        Outcome::RoleMissing,
    ),
    ("insufficient_scope", Outcome::RoleMissing),
    ("response indicates failure", Outcome::Other),
    ("json decoding failed", Outcome::Other),
];

/// Texts about an invalid or expired token: those of Kong's plugins, and the error code of RFC 6750, section 3.1.
const DEAD: [&str; 5] = [
    "invalid token",
    "invalid_token",
    "invalid cached token",
    "jwt expired",
    "token expired",
];
