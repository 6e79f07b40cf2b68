//! Reads which windows of a rate limit are used up, and when they open again, from the headers of
//! the IETF drafts (draft-ietf-httpapi-ratelimit-headers, 00 to 10) and of the gateways.

use std::time::{Duration, SystemTime};

use http::HeaderMap;

use super::seconds;

/// What the headers say of limits that are used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// The time until the last of them opens again.
    pub(crate) wait: Option<Duration>,
    /// The length of the longest of them.
    pub(crate) window: Option<Duration>,
}

/// One member of a list: a name or nothing, and its parameters.
struct Item<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

/// Reads all of them. Limits with calls left are no reason to wait and malformed members say
/// nothing.
pub(crate) fn spent(headers: &HeaderMap, sent: impl Fn() -> SystemTime) -> Spent {
    let named = headers.iter().filter_map(|(name, value)| {
        let window = name.as_str().strip_prefix("x-ratelimit-remaining-")?;
        let zero = value.as_bytes() == b"0";
        // Kong ends with the window's name, whatever stands before.
        zero.then(|| length(window.rsplit('-').next()?)).flatten()
    });
    let named: Option<Duration> = named.max();
    let listed = listed(headers);
    let window = named.max(listed.window);
    let wait = listed.wait.or_else(|| reset(headers, &sent));
    // Kong's windows are those of the calendar (UTC), so this is known even where resets are hidden.
    let wait = wait.or_else(|| rest_of(named?, sent()));
    Spent { wait, window }
}

/// `RateLimit: "day";r=0;t=30` with `RateLimit-Policy: "day";q=9;w=86400` (drafts 08 and later),
/// and `RateLimit: limit=9, remaining=0, reset=30` (drafts 06 and 07).
fn listed(headers: &HeaderMap) -> Spent {
    let policies = items(headers, "ratelimit-policy");
    let mut spent = Spent::default();
    for item in items(headers, "ratelimit") {
        let left = item.seconds("r").or_else(|| item.seconds("remaining"));
        let wait = item.seconds("t").or_else(|| item.seconds("reset"));
        if left > Some(Duration::ZERO) || (left, wait) == (None, None) {
            continue;
        }
        let policy = policies.iter().find(|policy| policy.name == item.name);
        let window = policy.and_then(|policy| policy.seconds("w"));
        spent.wait = spent.wait.max(wait);
        spent.window = spent.window.max(window);
    }
    spent
}

/// The single reset of drafts 00 to 05 and of those before them: seconds, or a time in seconds or
/// milliseconds since 1970.
fn reset(headers: &HeaderMap, sent: &impl Fn() -> SystemTime) -> Option<Duration> {
    ["ratelimit", "x-ratelimit"].iter().find_map(|family| {
        let read = |field: &str| {
            let value = headers.get(format!("{family}-{field}"))?;
            seconds(value.to_str().ok()?.trim())
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

fn items<'a>(headers: &'a HeaderMap, name: &str) -> Vec<Item<'a>> {
    let values = headers.get_all(name).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let mut items: Vec<Item<'a>> = Vec::new();
    for member in values.flat_map(|value| unquoted(value, ',')) {
        let mut parts = unquoted(member, ';').map(str::trim);
        let first = parts.next().unwrap_or_default();
        let parameters = parts.filter_map(|part| part.split_once('='));
        match (first.split_once('='), items.last_mut()) {
            // A dictionary is one item.
            (Some(pair), Some(item)) if item.name.is_empty() => item.parameters.push(pair),
            (Some(pair), _) => items.push(Item {
                name: "",
                parameters: vec![pair],
            }),
            (None, _) => items.push(Item {
                name: first.trim_matches('"'),
                parameters: parameters.collect(),
            }),
        }
    }
    items
}

/// Splits outside of quotes.
fn unquoted(text: &str, at: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c| {
        quoted ^= c == '"';
        c == at && !quoted
    })
}

/// The window of a name, as Kong writes it.
fn length(name: &str) -> Option<Duration> {
    let seconds = match name {
        "second" => 1,
        "minute" => 60,
        "hour" => HOUR,
        "day" => DAY,
        "month" => DAY.saturating_mul(28),
        "year" => DAY.saturating_mul(365),
        _ => return None,
    };
    Some(Duration::from_secs(seconds))
}

/// The rest of the calendar's hour, or of its day for all that is longer: no month ends before.
fn rest_of(window: Duration, sent: SystemTime) -> Option<Duration> {
    let length = window.as_secs().min(DAY);
    let since = sent.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let gone = since.as_secs().checked_rem(length)?;
    Some(Duration::from_secs(length.saturating_sub(gone)))
}

// === impl Item ===

impl Item<'_> {
    fn seconds(&self, name: &str) -> Option<Duration> {
        let value = self.parameters.iter().find(|(key, _)| key.trim() == name)?;
        seconds(value.1.trim())
    }
}

const HOUR: u64 = 3600;

const DAY: u64 = 24 * HOUR;

/// Larger is no wait (31 years) but a time: this is the year 2001.
const DATES: u64 = 1_000_000_000;

/// Larger is no time in seconds (the year 33658) but in milliseconds.
const MILLIS: u64 = 1_000_000_000_000;

#[cfg(test)]
mod tests;
