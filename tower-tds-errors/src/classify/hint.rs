//! Reads how long a response asks its client to wait, and whether a long quota is behind it.

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

/// Reads `Retry-After`, and for a 429 without one the time at which the used-up limit opens again.
///
/// `Retry-After` wins over all others (draft-ietf-httpapi-ratelimit-headers). The others are on answers
/// of any status, and a reason to wait only where the limit is the reason of the answer.
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
    let window = used_up(headers);
    let opens = || listed(headers).or_else(|| reset(headers, sent));
    // Kong's windows are those of the calendar (UTC), so this is known even where resets are hidden.
    let wait = asked.or_else(opens).or_else(|| rest_of(window?, sent()));
    Hint {
        wait,
        is_long: window > Some(MINUTE) || wait > Some(Duration::from_secs(MINUTE)),
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

/// `RateLimit: "day";r=0;t=30` (drafts 08 and later) and `RateLimit: limit=9, remaining=0, reset=30`
/// (drafts 06 and 07): the longest reset of a limit with nothing left.
fn listed(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("ratelimit")?.to_str().ok()?;
    let of = |item: &str, names: [&str; 2]| {
        let pairs = item
            .split([';', ','])
            .filter_map(|part| part.split_once('='));
        let mut told = pairs.filter(|(key, _)| names.contains(&key.trim()));
        told.next().and_then(|(_, value)| seconds(value))
    };
    // A dictionary is one item.
    let separator = if value.contains(';') { ',' } else { '\0' };
    let spent = value
        .split(separator)
        .filter(|item| of(item, ["r", "remaining"]) <= Some(Duration::ZERO));
    spent.filter_map(|item| of(item, ["t", "reset"])).max()
}

/// The single reset of drafts 00 to 05 and of those before them: seconds, or a time in seconds or
/// milliseconds since 1970.
fn reset(headers: &HeaderMap, sent: impl Fn() -> SystemTime) -> Option<Duration> {
    ["ratelimit", "x-ratelimit"].iter().find_map(|family| {
        let read = |field: &str| {
            let value = headers.get(format!("{family}-{field}"))?;
            seconds(value.to_str().ok()?)
        };
        if read("remaining") > Some(Duration::ZERO) {
            return None;
        }
        let reset = read("reset")?;
        let date = match reset.as_secs() {
            ..DATES => return Some(reset),
            DATES..MILLIS => reset,
            MILLIS.. => reset.checked_div(1000)?,
        };
        let date = SystemTime::UNIX_EPOCH.checked_add(date)?;
        Some(date.duration_since(sent()).unwrap_or_default())
    })
}

/// The length in seconds of the longest window of which Kong says that no call is left.
fn used_up(headers: &HeaderMap) -> Option<u64> {
    let lengths = headers.iter().filter_map(|(name, value)| {
        let window = name.as_str().strip_prefix("x-ratelimit-remaining-")?;
        // It ends with the window's name, whatever stands before.
        let length = match window.rsplit('-').next()? {
            "second" => 1,
            "minute" => MINUTE,
            "hour" => HOUR,
            "day" | "month" | "year" => DAY,
            _ => return None,
        };
        (value.as_bytes() == b"0").then_some(length)
    });
    lengths.max()
}

/// The rest of the calendar's window, or of its day for all that is longer: no month ends before.
fn rest_of(length: u64, sent: SystemTime) -> Option<Duration> {
    let since = sent.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let gone = since.as_secs().checked_rem(length)?;
    Some(Duration::from_secs(length.saturating_sub(gone)))
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

const HOUR: u64 = 3600;

const DAY: u64 = 24 * HOUR;

/// Larger is no wait (31 years) but a time: this is the year 2001.
const DATES: u64 = 1_000_000_000;

/// Larger is no time in seconds (the year 33658) but in milliseconds.
const MILLIS: u64 = 1_000_000_000_000;

#[cfg(test)]
mod tests;
