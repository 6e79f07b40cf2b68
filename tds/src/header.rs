//! Values of headers.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};

/// Returns the members of a header that is a list, in their order and in lower case.
pub(crate) fn members(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let values = headers.get_all(name).iter();
    let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase());
    let values: Vec<_> = values.collect();
    let members = values.iter().flat_map(|value| value.split(','));
    let members = members.map(|member| member.trim().to_owned());
    members.filter(|member| !member.is_empty()).collect()
}

/// Returns the media type, without its parameters.
pub(crate) fn media(headers: &HeaderMap) -> String {
    let media = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let media = media.unwrap_or_default().split(|byte| *byte == b';').next();
    String::from_utf8_lossy(media.unwrap_or_default().trim_ascii()).to_ascii_lowercase()
}

/// Parses a number of seconds, a month at most.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    let seconds = text.trim().parse::<u64>().ok()?;
    Some(Duration::from_secs(seconds).min(MONTH))
}

pub(crate) const MONTH: Duration = Duration::from_secs(31 * 86_400);
