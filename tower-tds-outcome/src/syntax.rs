//! Secrets that are known by their syntax, whoever wrote the text: parts of URLs, credentials of headers, JWTs.

use std::ops::Range;

use crate::text::{part, tail};

/// Adds the places of these parts. Each rule passes over the text once.
pub(crate) fn find(text: &str, found: &mut Vec<Range<usize>>) {
    urls(text, found);
    let lower = text.to_ascii_lowercase();
    for scheme in ["bearer", "basic"] {
        for (at, _) in lower.match_indices(scheme) {
            let after = at + scheme.len();
            let start = find_at(text, after, |c| !(c.is_whitespace() || is_quote(c)));
            if start == after {
                continue;
            }
            let word = token(text, start);
            let has = |of: fn(&u8) -> bool| part(text, word.clone()).as_bytes().iter().any(of);
            // `Basic authentication` is a sentence, and `Bearer realm="a"` is a challenge.
            if word.len() >= LEAST && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic) {
                found.push(word);
            }
        }
    }
    // A JWT begins with the base64 of `{"`.
    for (at, _) in text.match_indices("eyJ") {
        if part(text, 0..at).ends_with(|c: char| c.is_ascii_alphanumeric()) {
            continue;
        }
        let word = token(text, at);
        if word.len() >= LEAST {
            found.push(word);
        }
    }
}

/// Finds password and query in `https://user:password@host/path?query`.
fn urls(text: &str, found: &mut Vec<Range<usize>>) {
    let mut ends = 0;
    for (at, scheme) in text.match_indices("://") {
        let start = at + scheme.len();
        if at < ends {
            continue;
        }
        ends = find_at(text, start, |c| {
            c.is_whitespace() || is_quote(c) || matches!(c, '<' | '>')
        });
        let url = part(text, start..ends);
        let host = find_at(url, 0, |c| matches!(c, '/' | '?' | '#'));
        // A password that is not percent-encoded may have an `@`, `/`, `?` or `#`. Behind the colon of a host stand only digits.
        let colon = part(url, 0..host)
            .find(':')
            .filter(|_| !url.starts_with('['));
        let is_port = |colon| {
            tail(part(url, 0..host), colon + 1)
                .bytes()
                .all(|c| c.is_ascii_digit())
        };
        let password = colon.filter(|colon| !is_port(*colon));
        let user = password.and_then(|_| url.rfind('@')).unwrap_or_default();
        found.extend(password.map(|colon| start + colon + 1..start + user));
        // What ends a sentence or a bracket stays.
        let whole = url.trim_end_matches(['.', ',', ';', ':', ')', ']', '}']);
        let query = tail(whole, user).find('?');
        found.extend(query.map(|query| start + user + query + 1..start + whole.len()));
    }
}

/// Returns the word of a credential (RFC 9110, section 11.2) at a place.
fn token(text: &str, start: usize) -> Range<usize> {
    let end = find_at(text, start, |c| !is_token(c));
    let word = part(text, start..end).trim_end_matches(['.', '-']);
    start..start + word.len()
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~+/=".contains(c)
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`' | '\\')
}

/// Returns the first place at or after `start` whose character matches `of`, or the end of the text.
fn find_at(text: &str, start: usize, of: impl Fn(char) -> bool) -> usize {
    tail(text, start).find(of).map_or(text.len(), |n| start + n)
}

/// Shortest credential that is told from a word.
const LEAST: usize = 16;
