//! Reads how long a response asks its client to wait.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};

/// The longest wait that any `Retry-After` of the response asks for.
///
/// Malformed values are ignored (RFC 9110, section 10.2.3 knows seconds and dates only), except
/// that a fraction is rounded up, for servers are seen to send it. A number too large to hold is a
/// very long wait and not a missing one. A date counts from the response's own `Date`, so that
/// a skewed clock on either side changes nothing.
pub(crate) fn retry_after(
    headers: &HeaderMap,
    wall: impl FnOnce() -> SystemTime,
) -> Option<Duration> {
    if !headers.contains_key(RETRY_AFTER) {
        return None;
    }
    let sent = headers.get(DATE).and_then(|date| date.to_str().ok());
    let sent = sent
        .and_then(|date| httpdate::parse_http_date(date).ok())
        .unwrap_or_else(wall);
    let values = headers.get_all(RETRY_AFTER).iter();
    values
        .filter_map(|value| one(value.to_str().ok()?.trim(), sent))
        .max()
}

fn one(value: &str, sent: SystemTime) -> Option<Duration> {
    if let Ok(date) = httpdate::parse_http_date(value) {
        return Some(date.duration_since(sent).unwrap_or_default());
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

#[cfg(test)]
mod tests;
