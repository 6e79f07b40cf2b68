//! Reads the words of a server about a failure, from the body or from `WWW-Authenticate`.

use std::str;

use http::{HeaderMap, header::WWW_AUTHENTICATE};
use serde_json::Value;

use crate::text::{Decoded, part, tail};

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

/// Reads the words of a server about a failure, from the body and then from the head of its response: candidates for a
/// message, best first.
///
/// | from | what is read |
/// |---|---|
/// | JSON, cut or not | `message`, `error_description`, `error`, `reason`, `detail`, `title` and their like, also inside of `error`, `errors` or `fault` |
/// | XML or HTML | `<message>`, `<faultstring>`, a `<title>` that is not just "Error", the first `<p>` |
/// | any other body | its first line |
/// | `WWW-Authenticate` (RFC 6750, section 3) | `error_description`, `error` |
/// | gRPC | `grpc-message` |
///
/// The first character of a body decides its format, because gateways declare it wrongly or not at all. The texts are as
/// the server wrote them, so redact them before you show them: [`Secrets::line`](crate::Secrets::line).
///
/// ```
/// let body = br#"{"error":"invalid_client","error_description":"the secret has expired"}"#;
/// let said = tower_tds_outcome::said(&http::HeaderMap::new(), body);
/// assert_eq!(said, ["the secret has expired", "invalid_client"]);
/// ```
#[must_use]
pub fn said(headers: &HeaderMap, body: &[u8]) -> Vec<String> {
    let text = text(unmarked(body)).unwrap_or_default().trim();
    let found = match text.as_bytes().first() {
        Some(b'{' | b'[' | b'"') => json(text),
        Some(b'<') => sentences(text),
        _ => text.lines().next().map(str::to_owned).into_iter().collect(),
    };
    let challenges = challenges(headers).into_iter().rev();
    found
        .into_iter()
        .chain(challenges)
        .filter(|text| !text.trim().is_empty())
        .collect()
}

fn json(text: &str) -> Vec<String> {
    serde_json::from_str(text).map_or_else(|_| unescaped(text), |value| strings(&value))
}

fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(strings).collect(),
        Value::Object(fields) => {
            let known = KEYS.split(' ').filter_map(|key| fields.get(key));
            known.flat_map(strings).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the messages of Kong's template, which does not escape quotes, or of JSON that was cut.
fn unescaped(text: &str) -> Vec<String> {
    let message = |key: &str| {
        let (_, rest) = text.split_once(&format!("\"{key}\""))?;
        let rest = rest.trim_start().strip_prefix(':')?;
        let rest = rest.trim_start().strip_prefix('"')?;
        let message = quoted(rest, |after| {
            let after = after.trim_start();
            after.is_empty() || after.starts_with([',', '}'])
        });
        Some(message.unwrap_or(rest).replace("\\/", "/"))
    };
    KEYS.split(' ').filter_map(message).collect()
}

/// Returns the text before the first quote behind which a text may go on like this.
fn quoted(text: &str, may_follow: impl Fn(&str) -> bool) -> Option<&str> {
    let mut quotes = text.match_indices('"');
    let (end, _) = quotes.find(|(at, _)| may_follow(tail(text, at + 1)))?;
    Some(part(text, 0..end))
}

/// Returns the elements with a message: Kong writes `<message>` and `<p>`, SOAP a `<faultstring>`, most others a `<title>`.
fn sentences(text: &str) -> Vec<String> {
    // ASCII lower case keeps every byte position.
    let lower = text.to_ascii_lowercase();
    let names = ["message", "faultstring", "title", "p"].into_iter();
    let found = names.filter_map(|name| element(text, &lower, name));
    // So Kong titles its pages.
    let mut found: Vec<_> = found.filter(|text| text != "Error").collect();
    if found.is_empty() {
        found.push(stripped(text));
    }
    found
}

fn element(text: &str, lower: &str, name: &str) -> Option<String> {
    let (at, _) = lower
        .match_indices(&format!("<{name}"))
        .find(|(at, open)| {
            let after = tail(lower, at + open.len());
            after.starts_with(|c: char| c == '>' || c.is_ascii_whitespace())
        })?;
    let start = at + tail(lower, at).find('>')? + 1;
    let end = tail(lower, start).find(&format!("</{name}"));
    let end = end.map_or(text.len(), |length| start + length);
    Some(stripped(part(text, start..end))).filter(|text| !text.is_empty())
}

/// Returns the text between the tags, with single spaces.
fn stripped(text: &str) -> String {
    let pieces = text.split('<').enumerate().map(|(n, piece)| match n {
        0 => piece,
        _ => piece.split_once('>').map_or("", |(_, text)| text),
    });
    let words: Vec<_> = pieces.flat_map(str::split_whitespace).collect();
    words.join(" ")
}

/// Returns a text behind its byte-order mark, which RFC 8259, section 8.1, allows a reader to skip.
#[doc(hidden)]
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
pub(crate) fn challenges(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(WWW_AUTHENTICATE).iter();
    // Lossy, because a realm may have any encoding, and is not needed.
    let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()));
    // A gRPC refusal gives its reason in this header.
    let reason = headers.get("grpc-message");
    let reason = reason.map(|it| Decoded::new(&String::from_utf8_lossy(it.as_bytes())));
    let reason = reason.map(|it| it.inner().unwrap_or(it).text);
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
        let is_start = at == 0 || part(value, 0..at).ends_with([' ', ',', '\t']);
        let rest = tail(value, at + name.len()).trim_start();
        let rest = rest.strip_prefix('=')?.trim_start();
        is_start.then_some(rest)
    })?;
    let Some(rest) = rest.strip_prefix('"') else {
        return rest.split([',', ' ', '\t']).next();
    };
    quoted(rest, |after| {
        let next = after.trim_start();
        next.is_empty() || next.starts_with(',') || (next.len() < after.len() && names(next))
    })
}

/// Whether `text` begins with the name of a parameter.
fn names(text: &str) -> bool {
    let name = text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    name.starts_with('=') && name.len() < text.len()
}

/// Message keys, best first: of Kong and most servers, of OAuth, AWS, Kong's `jwt` plugin (`exp`), Okta, Apigee,
/// Elasticsearch and of RFC 9457. A key may hold a list, or an object with others.
const KEYS: &str = "message error_description errorMessage error_message error Message exp errorSummary msg errmsg errors fault \
                    faultstring reason detail title description";

#[cfg(test)]
mod tests;
