//! The reply of the token endpoint (RFC 6749, sections 5.1 and 5.2), and its token. No I/O, no clock.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header, response::Parts};
use serde::Deserialize;
use serde_json::Value;
use tower_tds_outcome::retry_after;

use crate::{TokenError, clock::Timestamp, error::Kind, state::Fetched};

#[cfg(test)]
mod tests;

/// Holds one token, for programs that send it without the layer.
///
/// `Debug` shows no token.
#[derive(Clone, Debug)]
pub struct AccessToken {
    /// Marked as sensitive, so that `Debug` hides it.
    header: HeaderValue,
}

/// A token that was just fetched, with its times.
#[derive(Clone, Debug)]
pub(crate) struct Issued {
    pub(crate) token: AccessToken,
    pub(crate) fetched: Fetched,
}

/// The members that are read. Unknown members are ignored, and so is `refresh_token`: this grant does
/// not need it (RFC 6749, section 4.4.3).
#[derive(Default, Deserialize)]
#[serde(default)]
struct Reply {
    access_token: Value,
    token_type: Value,
    expires_in: Value,
    error: Value,
}

// === impl AccessToken ===

impl AccessToken {
    /// Builds the header of a token, or returns the fault of the token.
    pub(crate) fn new(token: &str) -> Result<Self, &'static str> {
        if token.is_empty() {
            return Err("it is empty");
        }
        // RFC 6750, section 2.1, allows even fewer characters. Some servers would end the header at a
        // space or a line end.
        if !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("it is not visible ASCII");
        }
        let header = HeaderValue::try_from(format!("{SCHEME}{token}"));
        let mut header = header.map_err(|_| "it is not a header value")?;
        header.set_sensitive(true);
        Ok(Self { header })
    }

    /// The value of an `Authorization` header, `Bearer` and the token, marked as sensitive.
    #[must_use]
    pub fn header(&self) -> &HeaderValue {
        &self.header
    }

    /// The token alone, in clear, for protocols that carry it elsewhere.
    #[must_use]
    pub fn secret(&self) -> &str {
        let header = self.header.to_str().unwrap_or_default();
        header.strip_prefix(SCHEME).unwrap_or_default()
    }
}

/// Reads the reply to a token request that was sent at `sent`. An error of the body is ignored where
/// the body is not needed.
pub(crate) fn read(
    head: &Parts,
    body: Result<Bytes, TokenError>,
    sent: Timestamp,
    now: SystemTime,
) -> Result<Issued, TokenError> {
    let status = head.status;
    if !status.is_success() {
        let reply = body.ok().and_then(|body| parse(&body));
        let code = reply.and_then(|reply| known(reply.error.as_str()?));
        return Err(failure(head, code, now));
    }
    let reply = parse(&body?).ok_or(Kind::Malformed("it is not a JSON object"))?;
    let Value::String(value) = reply.access_token else {
        let code = reply.error.as_str().and_then(known);
        let kind = code.map(|code| Kind::Rejected(status, code));
        return Err(kind
            .unwrap_or(Kind::Malformed("it has no access_token"))
            .into());
    };
    let kind = reply.token_type.as_str().unwrap_or_default();
    if !kind.eq_ignore_ascii_case("bearer") {
        // RFC 6749, section 7.1: MUST NOT use a token of a type it does not understand.
        return Err(Kind::Unusable("its type is not Bearer").into());
    }
    let life = life(&reply.expires_in).map_err(Kind::Malformed)?;
    Ok(Issued {
        token: AccessToken::new(&value).map_err(Kind::Unusable)?,
        fetched: Fetched {
            sent,
            life: life.unwrap_or(DEFAULT_LIFE),
            is_own: true,
        },
    })
}

/// The error of a response that is no success, with its `Retry-After`.
///
/// The OAuth code determines the kind. The status does so if there is no code, or if the server did not
/// check the credentials.
pub(crate) fn failure(head: &Parts, code: Option<&'static str>, now: SystemTime) -> TokenError {
    let status = head.status;
    let busy = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    let error = TokenError::new(match code {
        _ if status.is_redirection() => Kind::Redirected(status),
        Some(code) if status.is_client_error() && !busy.contains(&status) => {
            Kind::Rejected(status, code)
        }
        _ => Kind::Unavailable(status),
    });
    // Gateways send the reset of a limit with every response.
    let is_asked =
        status == StatusCode::TOO_MANY_REQUESTS || head.headers.contains_key(header::RETRY_AFTER);
    match retry_after(&head.headers, now).filter(|_| is_asked) {
        Some(wait) => error.with_retry_after(wait),
        None => error,
    }
}

/// `None` unless it is a JSON object. The parser's own error is dropped, because it quotes the input.
fn parse(body: &[u8]) -> Option<Reply> {
    // RFC 8259, section 8.1, allows a parser to skip a byte-order mark.
    let text = body.strip_prefix(BOM).unwrap_or(body).trim_ascii_start();
    // Serde would read the members of a list by position.
    let object = text.starts_with(b"{").then_some(text)?;
    serde_json::from_slice(object).ok()
}

fn known(code: &str) -> Option<&'static str> {
    REFUSALS.into_iter().find(|known| *known == code)
}

/// The lifetime of a token: whole seconds, as a number or, from some servers, as digits in a string.
/// Fractions are cut off, and [`Lifetime`](crate::state::Lifetime) bounds the rest.
fn life(expires_in: &Value) -> Result<Option<Duration>, &'static str> {
    let secs = match expires_in {
        Value::Null => return Ok(None),
        Value::Number(number) => number.as_f64(),
        Value::String(text) => seconds(text),
        _ => None,
    };
    let secs = secs.ok_or("its expires_in is not a number")?;
    if secs < 1.0 {
        // Keycloak sends this when the session ends before the token (keycloak #24936).
        return Err("its expires_in is less than one second");
    }
    Ok(Some(duration(secs.trunc())))
}

/// Digits, perhaps with a fraction.
fn seconds(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse().ok().filter(|_| is_plain)
}

fn duration(secs: f64) -> Duration {
    Duration::try_from_secs_f64(secs).unwrap_or(Duration::from_secs(u64::MAX))
}

/// The life of a token without `expires_in`, which RFC 6749 only recommends. Five minutes is the
/// default of Keycloak's realm setting "Access Token Lifespan". A shorter value would cost token
/// requests, a longer one a 401.
const DEFAULT_LIFE: Duration = Duration::from_secs(5 * 60);
const SCHEME: &str = "Bearer ";
/// The byte-order mark (U+FEFF), which some servers send before the text.
const BOM: &[u8] = b"\xef\xbb\xbf";
/// The codes that need a person: RFC 6749, section 5.2, and `access_denied`, which Keycloak sends for
/// a disabled realm. Any other code is transient, such as `temporarily_unavailable`,
/// `unknown_error`, or that of a realm that is still being imported.
const REFUSALS: [&str; 7] = [
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "access_denied",
];
