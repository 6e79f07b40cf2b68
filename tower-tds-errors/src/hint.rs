//! Reads how long a response asks its client to wait, and whether a quota is behind it.

use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};

use self::limits::spent;

mod limits;

/// What the headers of an answer ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hint {
    /// The least wait before another attempt.
    pub(crate) wait: Option<Duration>,
    /// What is used up.
    pub(crate) used: Used,
    /// How long its window is, if it is named.
    pub(crate) window: Option<Duration>,
}

/// How long the used-up window is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Used {
    /// A minute at most, or nobody knows.
    #[default]
    Rate,
    /// An hour, a day or longer: not to be slept through.
    Quota,
}

/// Reads `Retry-After`, and for a 429 the headers that count calls.
///
/// `Retry-After` wins over all others (draft-ietf-httpapi-ratelimit-headers). The others are on answers
/// of any status, and a reason to wait only where the limit is the reason of the answer.
pub(crate) fn hint(status: StatusCode, headers: &HeaderMap, wall: impl Fn() -> SystemTime) -> Hint {
    let sent = || sent(headers).unwrap_or_else(&wall);
    let asked = retry_after(headers, sent);
    if status != StatusCode::TOO_MANY_REQUESTS {
        return Hint {
            wait: asked,
            ..Hint::default()
        };
    }
    let spent = spent(headers, sent);
    let wait = asked.or(spent.wait);
    let long = spent.window > Some(MINUTE) || wait > Some(MINUTE);
    Hint {
        wait,
        used: if long { Used::Quota } else { Used::Rate },
        window: spent.window,
    }
}

/// When the server says it answered. Dates count from there, so that a skewed clock on either side
/// changes nothing.
fn sent(headers: &HeaderMap) -> Option<SystemTime> {
    let date = headers.get(DATE)?.to_str().ok()?;
    httpdate::parse_http_date(date).ok()
}

/// The longest wait that any `Retry-After` of the response asks for.
///
/// Malformed values are ignored (RFC 9110, section 10.2.3 knows seconds and dates only), except
/// that a fraction is rounded up, for servers are seen to send it. A number too large to hold is a
/// very long wait and not a missing one.
fn retry_after(headers: &HeaderMap, sent: impl Fn() -> SystemTime) -> Option<Duration> {
    let values = headers.get_all(RETRY_AFTER).iter();
    values
        .filter_map(|value| one(value.to_str().ok()?.trim(), &sent))
        .max()
}

fn one(value: &str, sent: impl Fn() -> SystemTime) -> Option<Duration> {
    if let Ok(date) = httpdate::parse_http_date(value) {
        return Some(date.duration_since(sent()).unwrap_or_default());
    }
    value
        .split(',')
        .filter_map(|part| seconds(part.trim()))
        .max()
}

fn seconds(value: &str) -> Option<Duration> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let Ok(whole) = whole.parse::<u64>() else {
        return Some(Duration::MAX);
    };
    let up = u64::from(fraction.bytes().any(|digit| digit != b'0'));
    Some(Duration::from_secs(whole.saturating_add(up)))
}

fn digits(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())
}

/// The longest window that is worth a wait. Kong's next is an hour.
const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
