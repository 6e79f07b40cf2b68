//! Reads how long a response asks its client to wait, and whether a long quota is behind it.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};

/// What the headers of an answer ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hint {
    /// The least wait before another attempt.
    pub(super) wait: Option<Duration>,
    /// Whether a quota of longer than a minute is used up: not to be slept through.
    pub(super) is_long: bool,
}

/// Reads `Retry-After`, and for a 429 without one the time at which Kong's used-up limit opens again.
///
/// Kong's `RateLimit-Remaining`, `RateLimit-Reset` and `X-RateLimit-Remaining-Day` are on answers of any
/// status. They are a reason to wait only where the limit is the reason of the answer.
pub(super) fn hint(status: StatusCode, headers: &HeaderMap, wall: impl Fn() -> SystemTime) -> Hint {
    // Dates count from when the server says it answered, so that a skewed clock changes nothing.
    let sent = || {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
        date.unwrap_or_else(&wall)
    };
    let asked = retry_after(headers, sent);
    if status != StatusCode::TOO_MANY_REQUESTS {
        return Hint {
            wait: asked,
            is_long: false,
        };
    }
    let wait = asked.or_else(|| reset(headers));
    Hint {
        wait,
        is_long: has_long_window(headers) || wait > Some(Duration::from_secs(MINUTE)),
    }
}

/// The longest wait that any `Retry-After` of the response asks for.
///
/// Malformed values are ignored (RFC 9110, section 10.2.3 knows seconds and dates only), except
/// that a fraction is rounded up, for servers are seen to send it. A number too large to hold is a
/// very long wait and not a missing one.
fn retry_after(headers: &HeaderMap, sent: impl Fn() -> SystemTime) -> Option<Duration> {
    let values = headers.get_all(RETRY_AFTER).iter();
    let values = values.filter_map(|value| Some(value.to_str().ok()?.trim()));
    let waits = values.filter_map(|value| match httpdate::parse_http_date(value) {
        Ok(date) => Some(date.duration_since(sent()).unwrap_or_default()),
        Err(_) => value.split(',').filter_map(seconds).max(),
    });
    waits.max()
}

/// The reset of the limit that is used up, in seconds, as Kong sends it.
fn reset(headers: &HeaderMap) -> Option<Duration> {
    let read = |name: &str| seconds(headers.get(name)?.to_str().ok()?);
    if read("ratelimit-remaining") > Some(Duration::ZERO) {
        return None;
    }
    read("ratelimit-reset")
}

/// Whether Kong says of a window longer than a minute that no call is left in it.
fn has_long_window(headers: &HeaderMap) -> bool {
    headers.iter().any(|(name, value)| {
        let window = name.as_str().strip_prefix("x-ratelimit-remaining-");
        // It ends with the window's name, whatever stands before.
        let window = window.and_then(|window| window.rsplit('-').next());
        matches!(window, Some("hour" | "day" | "month" | "year")) && value.as_bytes() == b"0"
    })
}

fn seconds(value: &str) -> Option<Duration> {
    let value = value.trim();
    let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let Ok(whole) = whole.parse::<u64>() else {
        return Some(Duration::MAX);
    };
    let up = u64::from(fraction.bytes().any(|digit| digit != b'0'));
    Some(Duration::from_secs(whole.saturating_add(up)))
}

/// The longest window that is worth a wait. Kong's next is an hour.
const MINUTE: u64 = 60;

#[cfg(test)]
mod tests;
