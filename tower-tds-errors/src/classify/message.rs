//! The message in an error body of any format.

use std::str;

use serde_json::Value;

/// The text of a body, or `None` if it is not UTF-8. A last character that the byte bound cut in
/// two is left out.
pub(super) fn text(bytes: &[u8]) -> Option<&str> {
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        // An error in the middle means that the body is not UTF-8.
        Err(error) if error.error_len().is_some() => return None,
        Err(error) => str::from_utf8(bytes.get(..error.valid_up_to())?).ok()?,
    };
    // A NUL byte means another encoding, or an archive.
    (!text.contains('\0')).then_some(text)
}

/// The candidate messages of a body, best first.
///
/// The first character decides the format, because gateways declare it wrongly or not at all.
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
    let fields = KEYS.split(' ').filter_map(|key| nested.get(key)?.as_str());
    fields.map(str::to_owned).collect()
}

/// The message of Kong's template, which does not escape quotes, or of JSON that was cut.
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

/// The first element with a message: Kong writes `<message>` and `<p>`, nginx only a `<title>`.
fn sentence(text: &str) -> Option<String> {
    let found = ["message", "p", "title"];
    let found = found.iter().find_map(|name| element(text, name));
    found
        .or_else(|| Some(stripped(text)))
        .filter(|text| !text.is_empty())
}

fn element(text: &str, name: &str) -> Option<String> {
    // ASCII lower case keeps every byte position.
    let lower = text.to_ascii_lowercase();
    let open = lower.match_indices('<').find(|(at, _)| {
        let tag = lower.get(at.saturating_add(1)..).unwrap_or_default();
        let after = tag.strip_prefix(name).and_then(|rest| rest.chars().next());
        after.is_some_and(|c| c == '>' || c.is_ascii_whitespace())
    });
    let (_, inside) = text.get(open?.0..)?.split_once('>')?;
    let close = format!("</{name}");
    let end = inside
        .to_ascii_lowercase()
        .find(&close)
        .unwrap_or(inside.len());
    let sentence = stripped(inside.get(..end)?);
    (!sentence.is_empty()).then_some(sentence)
}

/// The text between the tags, with single spaces.
fn stripped(text: &str) -> String {
    let mut kept = String::new();
    for (n, piece) in text.split('<').enumerate() {
        let piece = if n == 0 {
            piece
        } else {
            piece.split_once('>').map_or("", |(_, text)| text)
        };
        kept.push_str(piece);
        kept.push(' ');
    }
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Kong and most others; OAuth; Kong's `jwt` plugin on an expired token; RFC 9457.
const KEYS: &str = "message error_description error Message exp detail title";

#[cfg(test)]
mod tests;
