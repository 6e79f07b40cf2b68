//! Waits that responses demand.

use std::time::{Duration, SystemTime};

use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_RANGE, DATE, RETRY_AFTER},
};

#[cfg(test)]
mod tests;

/// Returns how long a response wants you to wait: the longest of its `Retry-After` values, or else the reset of a limit
/// that is used up.
///
/// | header | of which response | what is read |
/// |---|---|---|
/// | `Retry-After` (RFC 9110, section 10.2.3) | any, except 401, 407 and a 416 with `Content-Range`, where a wait changes nothing | seconds, also with a fraction, which is rounded up; the three forms of a date; lists such as `60, 60` |
/// | `RateLimit-Reset`, `X-RateLimit-Reset`, `X-Rate-Limit-Reset` | without a usable `Retry-After`: a 429 unless the `-Remaining` of the same name shows that calls are left, and a 403 if it shows that none is | seconds, or seconds or milliseconds since 1970 |
///
/// Gateways such as Kong send the reset with every response, so it means nothing with any other status.
///
/// Dates count from the `Date` of the response, so a skewed clock changes nothing; without `Date` they count from
/// `now`. A date in the past means no wait. Malformed values are ignored, and a number that overflows becomes the
/// longest possible wait, so set a bound of your own.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use http::{HeaderMap, HeaderValue, StatusCode};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("retry-after", HeaderValue::from_static("60, 7"));
/// let wait = tower_tds_outcome::retry_after(StatusCode::CONFLICT, &headers, SystemTime::UNIX_EPOCH);
/// assert_eq!(wait, Some(Duration::from_secs(60)));
/// ```
#[must_use]
pub fn retry_after(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let status = status.as_u16();
    if matches!(status, 401 | 407) || (status == 416 && headers.contains_key(CONTENT_RANGE)) {
        return None;
    }
    let texts = |name| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|it| it.to_str().ok())
    };
    let sent = texts(DATE).find_map(|date| httpdate::parse_http_date(date).ok());
    let now = sent.unwrap_or(now);
    let left = |at: SystemTime| at.duration_since(now).unwrap_or_default();
    let asked =
        texts(RETRY_AFTER).filter_map(|text| match httpdate::parse_http_date(text.trim()) {
            Ok(date) => Some(left(date)),
            Err(_) => text.split(',').filter_map(seconds).max(),
        });
    asked.max().or_else(|| {
        let read = |name: String| seconds(headers.get(name)?.to_str().ok()?);
        let reset = |prefix: &str| {
            let left_calls = read(format!("{prefix}-remaining"));
            let is_used_up = match status {
                429 => left_calls.is_none_or(|left| left.is_zero()),
                403 => left_calls == Some(Duration::ZERO),
                _ => false,
            };
            let reset = read(format!("{prefix}-reset")).filter(|_| is_used_up)?;
            let since = match reset.as_secs() {
                ..EPOCHS => return Some(reset),
                seconds @ ..EPOCHS_IN_MILLIS => Duration::from_secs(seconds),
                millis => Duration::from_millis(millis),
            };
            let date = SystemTime::UNIX_EPOCH.checked_add(since);
            Some(date.map_or(reset, left))
        };
        ["ratelimit", "x-ratelimit", "x-rate-limit"]
            .into_iter()
            .find_map(reset)
    })
}

/// Reads seconds, rounding a fraction up. A sign makes the text malformed.
fn seconds(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
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

/// Numbers from here on are dates: as a wait this would be 31 years, as a date it is in 2001.
const EPOCHS: u64 = 1_000_000_000;

/// As a date in seconds this would be in the year 33658.
const EPOCHS_IN_MILLIS: u64 = 1_000 * EPOCHS;
