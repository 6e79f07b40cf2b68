//! The reply of the token endpoint (RFC 6749, sections 5.1 and 5.2). No I/O, no clock.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::{
    borrow::Cow,
    fmt,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, StatusCode, header, response::Parts};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::{TokenError, error::token::Kind};

#[cfg(test)]
mod tests;

/// A token as the server gave it.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) value: Zeroizing<String>,
    /// `None` if the reply does not say.
    pub(crate) life: Option<Duration>,
}

/// The members that count; unknown ones are ignored, and so is `refresh_token`: this grant needs
/// none (RFC 6749, section 4.4.3). Of a member that is there twice the last one counts.
#[derive(Default)]
struct Reply<'a> {
    access_token: Text<'a>,
    token_type: Text<'a>,
    expires_in: Option<Value>,
    error: Text<'a>,
}

/// A text, or none where something else stands: `"error": false`, say.
#[derive(Default)]
struct Text<'a>(Option<Cow<'a, str>>);

/// Reads a whole reply. A body that could not be read only matters where it was needed.
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
        return match reply.access_token.0 {
            Some(token) => {
                if !reply
                    .token_type
                    .0
                    .is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"))
                {
                    // RFC 6749, section 7.1: MUST NOT use a token of a type it does not understand.
                    return Err(TokenError::new(Kind::Unusable("its type is not Bearer")));
                }
                let life = life(reply.expires_in.as_ref())
                    .map_err(|reason| TokenError::new(Kind::Malformed(reason)))?;
                let value = Zeroizing::new(token.into_owned());
                Ok(Token { value, life })
            }
            None => Err(TokenError::new(
                match reply.error.0.as_deref().and_then(known) {
                    Some(code) => Kind::Rejected(status, code),
                    None => Kind::Malformed("it has no access_token"),
                },
            )),
        };
    }
    let code = body
        .ok()
        .and_then(|body| parse(&body).and_then(|reply| known(reply.error.0.as_deref()?)));
    Err(failure(head, code, now))
}

/// The error of an answer that is no success, with the time that its server asks for.
pub(crate) fn failure(head: &Parts, code: Option<&'static str>, now: SystemTime) -> TokenError {
    let error = TokenError::new(kind(head.status, code));
    match retry_after(&head.headers, now) {
        Some(wait) => error.with_retry_after(wait),
        None => error,
    }
}

/// The class of a failure: by its code, and by its status where there is no code or where the
/// status says that the server did not get as far as to look at the credentials.
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

/// `None` unless it is a JSON object. The parser's own error is dropped: it quotes the input.
fn parse(body: &[u8]) -> Option<Reply<'_>> {
    // RFC 8259, section 8.1, lets a parser step over it.
    serde_json::from_slice(body.strip_prefix(BOM).unwrap_or(body)).ok()
}

fn known(code: &str) -> Option<&'static str> {
    REFUSALS.into_iter().find(|known| *known == code)
}

/// The lifetime of a token: whole seconds, as a number or, from some servers, as digits in a
/// string. Fractions are cut off, those beyond all measure that JSON can
/// show are cut down by [`Lifetime`].
///
/// [`Lifetime`]: crate::state::Lifetime
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
        // Keycloak says so when the session ends before the token would (keycloak #24936).
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

/// `Retry-After`, in seconds or as a date (RFC 9110, section 10.2.3).
///
/// A date is compared with the server's own `Date`, so that two clocks that disagree do no harm;
/// without one, with the clock of this machine.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let value = text(header::RETRY_AFTER)?;
    if let Some(secs) = whole_seconds(value) {
        // A fraction, which servers are seen to send, is rounded up.
        let is_whole = value
            .split_once('.')
            .is_none_or(|(_, rest)| rest.bytes().all(|b| b == b'0'));
        return Some(Duration::from_secs(
            secs.saturating_add(u64::from(!is_whole)),
        ));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let date = text(header::DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    Some(
        until
            .duration_since(date.unwrap_or(now))
            .unwrap_or_default(),
    )
}

// === impl Reply ===

impl<'de> Deserialize<'de> for Reply<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Reply<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Reply<'de>, A::Error> {
                let mut reply = Reply::default();
                while let Some(name) = map.next_key::<Cow<'de, str>>()? {
                    match &*name {
                        "access_token" => reply.access_token = map.next_value()?,
                        "token_type" => reply.token_type = map.next_value()?,
                        "expires_in" => reply.expires_in = Some(map.next_value()?),
                        "error" => reply.error = map.next_value()?,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(reply)
            }
        }

        deserializer.deserialize_map(Members)
    }
}

// === impl Text ===

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Member<'a> {
            Text(#[serde(borrow)] Cow<'a, str>),
            Other(IgnoredAny),
        }

        Ok(match Member::deserialize(deserializer)? {
            Member::Text(text) => Self(Some(text)),
            Member::Other(_) => Self(None),
        })
    }
}

/// No token request asks for a compressed reply (RFC 9110, section 8.4), and none is read.
pub(crate) fn is_compressed(headers: &HeaderMap) -> bool {
    let coding = headers.get(header::CONTENT_ENCODING);
    let coding = coding.map_or(&b""[..], |coding| coding.as_bytes().trim_ascii());
    !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity")
}

/// U+FEFF, which some editors and servers put before everything.
const BOM: &[u8] = b"\xef\xbb\xbf";
/// The codes that a person has to mend: RFC 6749, section 5.2, and `access_denied`, which
/// Keycloak sends for a disabled realm. Any other code is an endpoint in trouble, such as
/// `temporarily_unavailable`, `unknown_error`, or a realm that is still being imported.
const REFUSALS: [&str; 7] = [
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "access_denied",
];
