//! Hints of a response: the wait that it requests, and whether a long quota is used up.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};

/// The hint of a response's headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hint {
    /// The least wait before another attempt.
    pub(super) wait: Option<Duration>,
    /// Whether a quota of longer than a minute is used up, which is too long to sleep.
    pub(super) is_long: bool,
}

/// Reads `Retry-After`, and for a 429 without one the reset of Kong's limit.
///
/// Kong sends `RateLimit-Remaining`, `RateLimit-Reset` and `X-RateLimit-Remaining-Day` with every
/// status. They are a reason to wait only if the limit caused the response.
pub(super) fn hint(status: StatusCode, headers: &HeaderMap, wall: impl Fn() -> SystemTime) -> Hint {
    // Dates count from the server's `Date`, so that a skewed clock changes nothing.
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

/// The longest wait of all `Retry-After` headers.
///
/// Malformed values are ignored (RFC 9110, section 10.2.3 has seconds and dates only). A fraction
/// is rounded up, because some servers send one. An overflow is a very long wait, not a missing
/// one.
fn retry_after(headers: &HeaderMap, sent: impl Fn() -> SystemTime) -> Option<Duration> {
    let values = headers.get_all(RETRY_AFTER).iter();
    let values = values.filter_map(|value| Some(value.to_str().ok()?.trim()));
    let waits = values.filter_map(|value| match httpdate::parse_http_date(value) {
        Ok(date) => Some(date.duration_since(sent()).unwrap_or_default()),
        Err(_) => value.split(',').filter_map(seconds).max(),
    });
    waits.max()
}

/// The reset of Kong's used-up limit.
fn reset(headers: &HeaderMap) -> Option<Duration> {
    let read = |name: &str| seconds(headers.get(name)?.to_str().ok()?);
    if read("ratelimit-remaining") > Some(Duration::ZERO) {
        return None;
    }
    read("ratelimit-reset")
}

/// Whether Kong reports that no call is left in a window longer than a minute.
fn has_long_window(headers: &HeaderMap) -> bool {
    headers.iter().any(|(name, value)| {
        let window = name.as_str().strip_prefix("x-ratelimit-remaining-");
        // The header's name ends with the window's name.
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

/// The longest window that is worth a wait. Kong's next longer window is an hour.
const MINUTE: u64 = 60;

#[cfg(test)]
mod tests;
