//! The reply of the token endpoint (RFC 6749, sections 5.1 and 5.2), and its token: when it is renewed, and when it
//! expires. This module does no I/O and reads no clock.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, StatusCode, response::Parts};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tower_tds_outcome::{SecretGuard, Secrets, retry_after, said, unmarked};

use crate::{
    clock::Timestamp,
    error::{ErrorKind, TokenError},
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
    /// Kept so that texts about this token stay clean while it is in use, however many sources share the secrets.
    held: Option<SecretGuard>,
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

/// Two moments of a token's life that matter after it has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) renew_at: Timestamp,
    pub(crate) expires_at: Timestamp,
}

/// Members that are read. Unknown members are ignored, and so is `refresh_token`: this grant does not
/// need it (RFC 6749, section 4.4.3).
#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenResponse {
    access_token: Value,
    token_type: Value,
    expires_in: Value,
    error: Value,
    error_description: Value,
}

// === impl TokenResponse ===

impl TokenResponse {
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

// === impl Issued ===

impl Issued {
    /// Plans the life of this token, which arrived at `now`. Returns `None` if it is already over.
    ///
    /// Life counts from the request: the server began to count after it, so the local expiry is never later than the
    /// server's. Drawn once per token, the jitter (`draw`, in `0.0..1.0`) only makes the renewal earlier, so that processes
    /// that start together drift apart and no renewal comes close to the expiry.
    pub(crate) fn lifetime_at(
        &self,
        now: Timestamp,
        before: Option<Duration>,
        draw: f64,
    ) -> Option<Lifetime> {
        let life = self.life.min(LONGEST);
        let expires_at = self.sent.checked_add(life)?;
        let left = expires_at.left_at(now);
        if left.is_zero() {
            return None;
        }
        let planned = self.sent.checked_add(age(life, before, draw))?;
        // A token that arrives late in its life is renewed after half of the rest, or after `MIN_DELAY` if that is
        // shorter. Without this line, a slow endpoint and a short life would cause a loop of requests.
        let soonest = now.checked_add(left.mul_f64(0.5).min(MIN_DELAY))?;
        let is_soon = planned.left_at(now) < soonest.left_at(now);
        let renew_at = if is_soon { soonest } else { planned };
        Some(Lifetime {
            renew_at,
            expires_at,
        })
    }
}

// === impl Lifetime ===

impl Lifetime {
    pub(crate) fn is_valid_at(&self, now: Timestamp) -> bool {
        !self.expires_at.has_come_at(now)
    }
}

/// Returns the age at which a token of this life is renewed, reduced by the jitter `draw`, in `0.0..1.0`.
fn age(life: Duration, before: Option<Duration>, draw: f64) -> Duration {
    match before {
        None => life.mul_f64(RENEW - EARLIER * draw),
        Some(Duration::ZERO) => life,
        Some(before) => {
            let age = life.checked_sub(before).filter(|age| !age.is_zero());
            let age = age.unwrap_or_else(|| life.mul_f64(0.5));
            age.mul_f64(1.0 - EARLIER * draw)
        }
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
    let refused = |kind, reply: Option<&TokenResponse>, body: &[u8]| {
        let error = failure(head, kind, now);
        match reply
            .and_then(TokenResponse::words)
            .or_else(|| said(&head.headers, body).into_iter().next())
        {
            Some(words) => error.because(secrets.line(&words)),
            None => error,
        }
    };
    let status = head.status;
    if !status.is_success() {
        let body = body.ok();
        let reply = body.as_deref().and_then(|body| parse(body).ok());
        let kind = refusal(status, reply.as_ref(), body.as_deref());
        return Err(refused(kind, reply.as_ref(), &body.unwrap_or_default()));
    }
    let body = body?;
    let reply: TokenResponse = parse(&body).map_err(ErrorKind::Malformed)?;
    let Value::String(value) = &reply.access_token else {
        return Err(match reply.error {
            Value::Null | Value::Bool(false) => {
                ErrorKind::Malformed("it has no access_token").into()
            }
            // Some servers and gateways send their errors with status 200.
            _ if is_busy(&reply) => refused(ErrorKind::Unavailable(status), Some(&reply), &body),
            _ => refused(ErrorKind::Rejected(status), Some(&reply), &body),
        });
    };
    // Some servers leave the type out, because they have only one.
    let kind = match &reply.token_type {
        Value::Null => BEARER[0],
        kind => kind.as_str().unwrap_or_default(),
    };
    if !is_one_of(&BEARER, kind) {
        // RFC 6749, section 7.1: MUST NOT use a token of a type it does not understand.
        return Err(ErrorKind::Unusable("its type is not Bearer").into());
    }
    let life = life(&reply.expires_in).map_err(ErrorKind::Malformed)?;
    Ok(Issued {
        token: AccessToken::new(value).map_err(ErrorKind::Unusable)?,
        sent,
        life: life.unwrap_or(DEFAULT_LIFE),
        is_own: true,
    })
}

/// Returns the error of a response that is not a success, with its `Retry-After`.
pub(crate) fn failure(head: &Parts, kind: ErrorKind, now: SystemTime) -> TokenError {
    let status = head.status;
    let error = TokenError::new(match kind {
        _ if status.is_redirection() => ErrorKind::Redirected(status),
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
fn refusal(status: StatusCode, reply: Option<&TokenResponse>, body: Option<&[u8]>) -> ErrorKind {
    let is_refusal = match status.as_u16() {
        _ if reply.is_some_and(is_busy) => false,
        400 => body.is_some_and(|body| !is_page(trimmed(body))),
        401 => true,
        403 => reply.is_some_and(|reply| reply.code().is_some()),
        _ => false,
    };
    if is_refusal {
        return ErrorKind::Rejected(status);
    }
    ErrorKind::Unavailable(status)
}

/// Whether the code is that of a server that may do better later.
fn is_busy(reply: &TokenResponse) -> bool {
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
/// string. Fractions are cut off, and [`Issued::lifetime_at`] bounds the rest.
fn life(expires_in: &Value) -> Result<Option<Duration>, &'static str> {
    let secs = match expires_in {
        Value::Null => return Ok(None),
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let secs = secs.filter(|secs: &f64| secs.is_finite());
    let secs = secs.ok_or("its expires_in is not a number")?;
    if secs < 1.0 {
        // Keycloak sends this when the session ends before the token (keycloak #24936).
        return Err("its expires_in is less than one second");
    }
    let life = Duration::try_from_secs_f64(secs.trunc());
    Ok(Some(life.unwrap_or(Duration::from_secs(u64::MAX))))
}

/// Life of a token without `expires_in`, which RFC 6749 only recommends. Five minutes is the default of Keycloak's
/// realm setting "Access Token Lifespan". A shorter life would cost token requests, a longer one a 401.
const DEFAULT_LIFE: Duration = Duration::from_secs(5 * 60);
/// Latest renewal, as a share of life. A 24 h token then costs 1.25 to 1.43 requests a day, and an
/// endpoint may be down for almost five hours before a call fails.
const RENEW: f64 = 0.8;
/// Jitter, as a share of life. For a 24 h token it is 2.4 h, which spreads the renewals of a thousand
/// processes that start together to one in nine seconds. An age that was set has the
/// same share: 24 h then hold at most six renewals at 4 h (6 * 3.6 h is 21.6 h, 7 * 3.6 h is 25.2 h).
const EARLIER: f64 = 0.1;
/// Shortest time from the arrival of a token to its renewal, unless half of the remaining life is
/// shorter.
const MIN_DELAY: Duration = Duration::from_secs(30);
/// Longest life: thirty days. Longer lives are cut, so that a hostile number cannot overflow a clock.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
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
