//! Errors in `WWW-Authenticate`.

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

/// The values of `error` and `error_description`, in order.
///
/// The parser is lenient, because gateways separate by comma or by space and do not escape quotes.
/// A value ends at a quote that the end or a separator and a new parameter follow.
pub(super) fn errors(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(WWW_AUTHENTICATE).iter();
    // A realm may have any encoding, and is not read.
    let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()));
    let mut found = Vec::new();
    for value in values {
        for name in ["error", "error_description"] {
            found.extend(parameter(&value, name).map(str::to_owned));
        }
    }
    found
}

fn parameter<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    // Names ignore case, and spaces may surround the sign (RFC 9110, section 11.2). ASCII lower
    // case keeps every byte position.
    let lower = value.to_ascii_lowercase();
    let rest = lower.match_indices(name).find_map(|(at, _)| {
        let before = value.get(..at)?.chars().next_back();
        let after = value.get(at.saturating_add(name.len())..)?.trim_start();
        let rest = after.strip_prefix('=')?.trim_start();
        before
            .is_none_or(|c| matches!(c, ' ' | ',' | '\t'))
            .then_some(rest)
    })?;
    let Some(quoted) = rest.strip_prefix('"') else {
        return rest.split([',', ' ', '\t']).next();
    };
    let end = quoted.match_indices('"').find(|(at, _)| {
        let after = quoted.get(at.saturating_add(1)..).unwrap_or_default();
        let next = after.trim_start();
        next.is_empty() || next.starts_with(',') || (next.len() < after.len() && names(next))
    });
    quoted.get(..end?.0)
}

/// Whether `text` begins with the name of a parameter.
fn names(text: &str) -> bool {
    let name = text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    name.starts_with('=') && name.len() < text.len()
}

#[cfg(test)]
mod tests;
