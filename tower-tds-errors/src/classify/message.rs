//! Finds the sentence in an error body, whatever the body is written in.

use serde_json::Value;

use self::markup::sentence;

mod markup;

/// What the body says, best first.
///
/// The first character tells the format: gateways declare it wrongly, or not at all.
pub(super) fn candidates(text: &str) -> Vec<String> {
    let text = text.trim_start_matches('\u{feff}').trim();
    let found = match text.as_bytes().first() {
        Some(b'{' | b'[' | b'"') => json(text),
        Some(b'<') => sentence(text).into_iter().collect(),
        _ => text.lines().next().map(str::to_owned).into_iter().collect(),
    };
    found
        .into_iter()
        .filter(|text| !text.trim().is_empty())
        .collect()
}

fn json(text: &str) -> Vec<String> {
    match serde_json::from_str(text) {
        Ok(value) => strings(&value),
        Err(_) => unescaped(text).into_iter().collect(),
    }
}

fn strings(value: &Value) -> Vec<String> {
    if let Value::String(text) = value {
        return vec![text.clone()];
    }
    let nested = value
        .get("error")
        .filter(|error| error.is_object())
        .unwrap_or(value);
    let fields = KEYS.iter().filter_map(|key| nested.get(key)?.as_str());
    fields.map(str::to_owned).collect()
}

/// The message of Kong's template, which pastes it in without escaping quotes, or of JSON that was
/// cut off.
fn unescaped(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("\"message\"")?;
    let rest = rest
        .trim_start()
        .strip_prefix(':')?
        .trim_start()
        .strip_prefix('"')?;
    let end = rest.match_indices('"').map(|(at, _)| at).find(|at| {
        let after = rest
            .get(at.saturating_add(1)..)
            .unwrap_or_default()
            .trim_start();
        after.is_empty() || after.starts_with([',', '}'])
    });
    let message = rest.get(..end.unwrap_or(rest.len()))?;
    Some(message.replace("\\/", "/"))
}

/// Kong and most others; OAuth; Kong's `jwt` plugin on an expired token; RFC 9457.
const KEYS: [&str; 7] = [
    "message",
    "error_description",
    "error",
    "Message",
    "exp",
    "detail",
    "title",
];

#[cfg(test)]
mod tests;
