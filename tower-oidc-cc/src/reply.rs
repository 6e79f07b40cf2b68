//! The reply of the token endpoint (RFC 6749, sections 5.1 and 5.2), and its token. This module does no I/O and reads
//! no clock.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, StatusCode, response::Parts};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tower_tds_outcome::{Held, Secrets, retry_after, said, unmarked};

use crate::{
    clock::Timestamp,
    error::{Kind, TokenError},
};

#[cfg(test)]
mod tests;

/// Holds one token, for programs that send it without the layer.
///
/// `Debug` shows no token.
#[derive(Clone, Debug)]
pub struct AccessToken {
    /// Marked as sensitive, so that `Debug` hides it.
    header: HeaderValue,
    /// Held, so that texts about this token stay clean while it is in use, however many sources share the secrets.
    held: Option<Held>,
}

/// A token that was just fetched.
#[derive(Clone, Debug)]
pub(crate) struct Issued {
    pub(crate) token: AccessToken,
    /// Time of the token request. The life counts from it, because the server's count began later.
    pub(crate) sent: Timestamp,
    pub(crate) life: Duration,
    /// Whether this process requested it; otherwise it comes from a store.
    pub(crate) is_own: bool,
}

/// Members that are read. Unknown members are ignored, and so is `refresh_token`: this grant does not
/// need it (RFC 6749, section 4.4.3).
#[derive(Default, Deserialize)]
#[serde(default)]
struct Reply {
    access_token: Value,
    token_type: Value,
    expires_in: Value,
    error: Value,
    error_description: Value,
}

// === impl Reply ===

impl Reply {
    fn code(&self) -> Option<&str> {
        self.error.as_str()
    }

    /// Returns the server's own words.
    fn words(&self) -> Option<String> {
        let words = [&self.error, &self.error_description];
        let words: Vec<_> = words.into_iter().filter_map(Value::as_str).collect();
        (!words.is_empty()).then(|| words.join(": "))
    }
}

// === impl AccessToken ===

impl AccessToken {
    /// Builds the header of a token, or returns the fault of the token.
    pub(crate) fn new(token: &str) -> Result<Self, &'static str> {
        // RFC 6750, section 2.1, allows even fewer characters. Some servers would end the header at a
        // space or a line end.
        let is_plain = !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
        let header = HeaderValue::try_from(format!("{SCHEME}{token}"));
        let header = header.ok().filter(|_| is_plain);
        let mut header = header.ok_or("it is empty, or not visible ASCII")?;
        header.set_sensitive(true);
        Ok(Self { header, held: None })
    }

    /// Adds the token to the secrets that no text may show.
    pub(crate) fn hold(&mut self, secrets: &Secrets) {
        self.held = Some(secrets.add(TOKEN, self.secret()));
    }

    /// Returns the value of an `Authorization` header, `Bearer` and the token, marked as sensitive.
    #[must_use]
    pub fn header(&self) -> &HeaderValue {
        &self.header
    }

    /// Returns the token alone, in plain text, for protocols that carry it elsewhere.
    #[must_use]
    pub fn secret(&self) -> &str {
        let header = self.header.to_str().unwrap_or_default();
        header.strip_prefix(SCHEME).unwrap_or_default()
    }
}

/// Reads the reply to a token request that was sent at `sent`. If the body is not needed, its error
/// is ignored.
pub(crate) fn read(
    head: &Parts,
    body: Result<Bytes, TokenError>,
    sent: Timestamp,
    now: SystemTime,
    secrets: &Secrets,
) -> Result<Issued, TokenError> {
    let refused = |kind, reply: Option<&Reply>, body: &[u8]| {
        let error = failure(head, kind, now);
        match reply
            .and_then(Reply::words)
            .or_else(|| said(body).into_iter().next())
        {
            Some(words) => error.because(secrets.line(&words)),
            None => error,
        }
    };
    let status = head.status;
    if !status.is_success() {
        let body = body.ok();
        let reply = body.as_deref().and_then(|body| parse::<Reply>(body).ok());
        let kind = refusal(status, reply.as_ref(), body.as_deref());
        return Err(refused(kind, reply.as_ref(), &body.unwrap_or_default()));
    }
    let body = body?;
    let reply: Reply = parse(&body).map_err(Kind::Malformed)?;
    let Value::String(value) = &reply.access_token else {
        return Err(match reply.error {
            Value::Null | Value::Bool(false) => Kind::Malformed("it has no access_token").into(),
            // Some servers and gateways send their errors with status 200.
            _ if is_busy(&reply) => refused(Kind::Unavailable(status), Some(&reply), &body),
            _ => refused(Kind::Rejected(status), Some(&reply), &body),
        });
    };
    // Some servers leave the type out, because they have only one.
    let kind = match &reply.token_type {
        Value::Null => BEARER[0],
        kind => kind.as_str().unwrap_or_default(),
    };
    if !is_one_of(&BEARER, kind) {
        // RFC 6749, section 7.1: MUST NOT use a token of a type it does not understand.
        return Err(Kind::Unusable("its type is not Bearer").into());
    }
    let life = life(&reply.expires_in).map_err(Kind::Malformed)?;
    Ok(Issued {
        token: AccessToken::new(value).map_err(Kind::Unusable)?,
        sent,
        life: life.unwrap_or(DEFAULT_LIFE),
        is_own: true,
    })
}

/// Returns the error of a response that is not a success, with its `Retry-After`.
pub(crate) fn failure(head: &Parts, kind: Kind, now: SystemTime) -> TokenError {
    let status = head.status;
    let error = TokenError::new(match kind {
        _ if status.is_redirection() => Kind::Redirected(status),
        kind => kind,
    });
    match retry_after(status, &head.headers, now) {
        Some(wait) => error.with_retry_after(wait),
        None => error,
    }
}

/// Decides whether a person must change something, or the server was only busy (RFC 6749, section 5.2).
///
/// A 401 is a failed client authentication whatever its body is: gateways write their own. A 400 is a
/// wrong setting, unless it is a page, which a proxy sends about a request that it did not pass on.
/// A 403 needs a code, because a gateway sends it too. Other servers than the right one send the rest.
fn refusal(status: StatusCode, reply: Option<&Reply>, body: Option<&[u8]>) -> Kind {
    let is_refusal = match status.as_u16() {
        _ if reply.is_some_and(is_busy) => false,
        400 => body.is_some_and(|body| !is_page(trimmed(body))),
        401 => true,
        403 => reply.is_some_and(|reply| reply.code().is_some()),
        _ => false,
    };
    if is_refusal {
        return Kind::Rejected(status);
    }
    Kind::Unavailable(status)
}

/// Whether the code is that of a server that may do better later.
fn is_busy(reply: &Reply) -> bool {
    reply.code().is_some_and(|code| is_one_of(&BUSY, code))
}

/// Reads a JSON object. The fault is a fixed text, because the parser's own text quotes the input.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, &'static str> {
    let text = trimmed(body);
    match text.first() {
        // Serde would read the members of a list by position.
        Some(b'{') => serde_json::from_slice(text).map_err(|error| match () {
            () if error.is_eof() => "it ends early",
            () if error.is_data() => "a member occurs twice",
            () => "it is not JSON",
        }),
        None => Err("it is empty"),
        Some(_) if is_page(text) => Err("it is a page, not JSON"),
        Some(_) => Err("it is not a JSON object"),
    }
}

fn trimmed(body: &[u8]) -> &[u8] {
    unmarked(body).trim_ascii_start()
}

fn is_page(text: &[u8]) -> bool {
    text.starts_with(b"<")
}

/// Whether a list has this name, in any letter case.
fn is_one_of(names: &[&str], text: &str) -> bool {
    names.iter().any(|name| name.eq_ignore_ascii_case(text))
}

/// Returns the lifetime of a token: whole seconds, as a number or, from some servers, as digits in a
/// string. Fractions are cut off, and [`Lifetime`](crate::state::Lifetime) bounds the rest.
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

/// Reads digits, perhaps with a fraction.
fn seconds(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse().ok().filter(|_| is_plain)
}

fn duration(secs: f64) -> Duration {
    Duration::try_from_secs_f64(secs).unwrap_or(Duration::from_secs(u64::MAX))
}

/// Life of a token without `expires_in`, which RFC 6749 only recommends. Five minutes is the default of Keycloak's
/// realm setting "Access Token Lifespan". A shorter life would cost token requests, a longer one a 401.
const DEFAULT_LIFE: Duration = Duration::from_secs(5 * 60);
const SCHEME: &str = "Bearer ";
/// RFC 6749, section 4.1.2.1; RFC 8628, section 3.5; Keycloak.
const BUSY: [&str; 4] = [
    "temporarily_unavailable",
    "server_error",
    "slow_down",
    "unknown_error",
];
/// The name of tokens among the secrets.
const TOKEN: &str = "access_token";
/// The type of RFC 6750, and Apigee's name for it.
const BEARER: [&str; 2] = ["Bearer", "BearerToken"];
