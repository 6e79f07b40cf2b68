//! Reads the words of a server about a failure, from the body or from `WWW-Authenticate`.

use std::str;

use http::{HeaderMap, header::WWW_AUTHENTICATE};
use serde_json::Value;

use crate::text::Decoded;

/// Returns the text of a body, or `None` if it is not UTF-8. If the byte bound cut the last
/// character, it is left out.
fn text(bytes: &[u8]) -> Option<&str> {
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        // An error before the end means that the body is not UTF-8.
        Err(error) if error.error_len().is_some() => return None,
        Err(error) => str::from_utf8(bytes.get(..error.valid_up_to())?).ok()?,
    };
    // Control characters mean another encoding, an archive, or a compressed body.
    let is_control = |c: char| c.is_control() && !c.is_whitespace();
    (!text.contains(is_control)).then_some(text)
}

/// Reads what a server said in the body of an error: its candidates for a message, best first.
///
/// | body | what is read |
/// |---|---|
/// | JSON, cut or not | `message`, `error_description`, `error`, `exp`, `detail`, `title`, also inside of an `error` object |
/// | XML or HTML | `<message>`, the first `<p>`, or the `<title>` |
/// | any other text | its first line |
///
/// The first character decides the format, because gateways declare it wrongly or not at all. The texts are as the
/// server wrote them, so redact them before you show them: [`Secrets::line`](crate::Secrets::line).
///
/// ```
/// let body = br#"{"error":"invalid_client","error_description":"the secret has expired"}"#;
/// assert_eq!(tower_tds_outcome::said(body), ["the secret has expired", "invalid_client"]);
/// ```
#[must_use]
pub fn said(body: &[u8]) -> Vec<String> {
    let text = text(unmarked(body)).unwrap_or_default().trim();
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

/// Returns the message of Kong's template, which does not escape quotes, or of JSON that was cut.
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

/// Returns the first element with a message: Kong writes `<message>` and `<p>`, nginx only a
/// `<title>`.
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

/// Returns the text between the tags, with single spaces.
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

/// Returns a text behind its byte-order mark, which RFC 8259, section 8.1, allows a reader to skip.
#[must_use]
pub fn unmarked(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Reads why a call was refused from the head of its response: the reason of a gRPC refusal, and the values of `error`
/// and `error_description` in `WWW-Authenticate` (RFC 6750, section 3).
///
/// The parser is lenient, because gateways separate parameters by comma or by space and do not
/// escape quotes. A value ends at the first quote that is followed by the end of the header, by a
/// comma, or by a space and another parameter.
#[must_use]
pub fn challenges(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(WWW_AUTHENTICATE).iter();
    // Lossy, because a realm may have any encoding, and is not needed.
    let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()));
    // A gRPC refusal gives its reason in this header.
    let reason = headers.get("grpc-message");
    let reason = reason.map(|it| Decoded::new(&String::from_utf8_lossy(it.as_bytes())).text);
    let mut found: Vec<_> = reason.into_iter().filter(|it| !it.is_empty()).collect();
    for value in values {
        for name in ["error", "error_description"] {
            found.extend(parameter(&value, name).map(str::to_owned));
        }
    }
    found
}

fn parameter<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    // Names ignore case, and spaces may surround the `=` (RFC 9110, section 11.2). ASCII lower
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

/// Message keys, best first: of Kong and most servers, of OAuth, of Kong's `jwt` plugin (`exp`),
/// and of RFC 9457.
const KEYS: &str = "message error_description error Message exp detail title";

#[cfg(test)]
mod tests;
