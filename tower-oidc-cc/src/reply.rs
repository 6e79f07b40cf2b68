//! The reply of the token endpoint (RFC 6749, sections 5.1 and 5.2). No I/O, no clock.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, StatusCode, header, response::Parts};
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::{TokenError, error::Kind};

#[cfg(test)]
mod tests;

/// A token as the server gave it.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) value: Zeroizing<String>,
    /// `None` if the reply has none.
    pub(crate) life: Option<Duration>,
}

/// The members that count. Unknown ones are ignored, `refresh_token` among them: this grant needs
/// none (RFC 6749, section 4.4.3).
#[derive(Default, Deserialize)]
#[serde(default)]
struct Reply<'a> {
    #[serde(borrow, deserialize_with = "text")]
    access_token: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    token_type: Option<Cow<'a, str>>,
    expires_in: Option<Value>,
    #[serde(borrow, deserialize_with = "text")]
    error: Option<Cow<'a, str>>,
}

/// Reads a whole reply. An error of the body only matters where the body is needed.
pub(crate) fn read(
    head: &Parts,
    body: Result<Zeroizing<Vec<u8>>, TokenError>,
    now: SystemTime,
) -> Result<Token, TokenError> {
    let status = head.status;
    if status.is_success() {
        let body = body?;
        let Some(reply) = parse(&body) else {
            return Err(TokenError::new(Kind::Malformed("it is no JSON object")));
        };
        return match reply.access_token {
            Some(token) => {
                let is_bearer = |kind: Cow<'_, str>| kind.eq_ignore_ascii_case("bearer");
                if !reply.token_type.is_some_and(is_bearer) {
                    // RFC 6749, section 7.1: MUST NOT use a token of a type it does not understand.
                    return Err(TokenError::new(Kind::Unusable("its type is not Bearer")));
                }
                let life = life(reply.expires_in.as_ref())
                    .map_err(|reason| TokenError::new(Kind::Malformed(reason)))?;
                let value = Zeroizing::new(token.into_owned());
                Ok(Token { value, life })
            }
            None => Err(TokenError::new(
                match reply.error.as_deref().and_then(known) {
                    Some(code) => Kind::Rejected(status, code),
                    None => Kind::Malformed("it has no access_token"),
                },
            )),
        };
    }
    let code = body
        .ok()
        .and_then(|body| parse(&body).and_then(|reply| known(reply.error.as_deref()?)));
    Err(failure(head, code, now))
}

/// The error of an answer that is no success, with its `Retry-After`.
pub(crate) fn failure(head: &Parts, code: Option<&'static str>, now: SystemTime) -> TokenError {
    let error = TokenError::new(kind(head.status, code));
    match retry_after(&head.headers, now) {
        Some(wait) => error.with_retry_after(wait),
        None => error,
    }
}

/// The kind of a failure: by its code, or by its status where there is no code, or where the server
/// did not look at the credentials.
fn kind(status: StatusCode, code: Option<&'static str>) -> Kind {
    let busy = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    match code {
        _ if status.is_redirection() => Kind::Redirected(status),
        Some(code) if status.is_client_error() && !busy.contains(&status) => {
            Kind::Rejected(status, code)
        }
        _ => Kind::Unavailable(status),
    }
}

/// `None` unless it is a JSON object. The parser's own error is dropped, because it quotes the input.
fn parse(body: &[u8]) -> Option<Reply<'_>> {
    // RFC 8259, section 8.1, lets a parser skip it.
    let text = body.strip_prefix(BOM).unwrap_or(body).trim_ascii_start();
    // A list would be read by position.
    let object = text.starts_with(b"{").then_some(text)?;
    serde_json::from_slice(object).ok()
}

fn known(code: &str) -> Option<&'static str> {
    REFUSALS.into_iter().find(|known| *known == code)
}

/// The lifetime of a token: whole seconds, as a number or, from some servers, as digits in a string.
/// Fractions are cut off, and [`Lifetime`](crate::state::Lifetime) bounds the rest.
fn life(expires_in: Option<&Value>) -> Result<Option<Duration>, &'static str> {
    let secs = match expires_in {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => match (number.as_u64(), number.as_f64()) {
            (Some(secs), _) => secs,
            (None, Some(secs)) if secs >= 1.0 => {
                Duration::try_from_secs_f64(secs).map_or(u64::MAX, |life| life.as_secs())
            }
            (None, _) => 0,
        },
        Some(Value::String(digits)) => {
            whole_seconds(digits).ok_or("its expires_in is no number")?
        }
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            return Err("its expires_in is no number");
        }
    };
    if secs == 0 {
        // Keycloak sends this when the session ends before the token (keycloak #24936).
        return Err("its token was expired from the start");
    }
    Ok(Some(Duration::from_secs(secs)))
}

/// Digits, and perhaps a fraction of zeros or anything else.
fn whole_seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    (digits(whole) && digits(fraction)).then(|| whole.parse().unwrap_or(u64::MAX))
}

/// The longest `Retry-After`, in seconds or as a date (RFC 9110, section 10.2.3).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let date = headers
        .get(header::DATE)
        .and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| httpdate::parse_http_date(date.trim()).ok());
    // Compared with the server's own `Date`, so that two clocks that disagree do no harm.
    let now = date.unwrap_or(now);
    let values = headers.get_all(header::RETRY_AFTER).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.filter_map(|text| wait(text.trim(), now)).max()
}

fn wait(text: &str, now: SystemTime) -> Option<Duration> {
    if let Some(secs) = whole_seconds(text) {
        // Some servers send a fraction, which is rounded up.
        let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
        let more = u64::from(fraction.bytes().any(|b| b != b'0'));
        return Some(Duration::from_secs(secs.saturating_add(more)));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    Some(until.duration_since(now).unwrap_or_default())
}

/// A text; any other value, such as `"error": false`, is none.
fn text<'de: 'a, 'a, D>(deserializer: D) -> Result<Option<Cow<'a, str>>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Member<'a> {
        Text(#[serde(borrow)] Cow<'a, str>),
        Other(IgnoredAny),
    }

    Ok(match Member::deserialize(deserializer)? {
        Member::Text(text) => Some(text),
        Member::Other(_) => None,
    })
}

/// Whether a reply is compressed. No token request accepts that (RFC 9110, section 8.4).
pub(crate) fn is_compressed(headers: &HeaderMap) -> bool {
    let coding = headers.get(header::CONTENT_ENCODING);
    let coding = coding.map_or(&b""[..], |coding| coding.as_bytes().trim_ascii());
    !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity")
}

/// U+FEFF, which some servers put before the text.
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
