//! Texts of others: their escapes, the secrets that their syntax shows, and their cut to one line; and rough durations.

use std::{fmt, iter, ops::Range, time::Duration};

/// A text without its outer escapes, with the place of each part in the source.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) text: String,
    /// For each byte of `text`, where its character starts in the source.
    starts: Vec<usize>,
}

/// Duration rounded for a person: milliseconds below two minutes, then whole minutes, hours and days.
#[derive(Clone, Copy, Debug)]
pub struct Rough(pub Duration);

// === impl Decoded ===

impl Decoded {
    /// Decodes `%XX`, `\n`, `\"`, `\u00e9`, `\xe9`, `&quot;` and `&#43;`.
    pub(crate) fn new(source: &str) -> Self {
        let (mut bytes, mut starts, mut at) = (Vec::new(), Vec::new(), 0);
        while at < source.len() {
            let rest = tail(source, at);
            let plain = rest.find(['%', '\\', '&']).unwrap_or(rest.len());
            bytes.extend_from_slice(part(rest, 0..plain).as_bytes());
            starts.extend(at..at + plain);
            at += plain;
            let rest = tail(source, at);
            let length = escape(rest, &mut bytes).unwrap_or_else(|| {
                bytes.extend(rest.bytes().next());
                1
            });
            starts.resize(bytes.len(), at);
            at += length;
        }
        starts.push(source.len());
        let mut text = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            // Each byte keeps its place.
            text.extend(chunk.invalid().iter().map(|_| '?'));
        }
        Self { text, starts }
    }

    /// Decodes what another text escaped before. Returns `None` if nothing is left to decode.
    pub(crate) fn again(&self) -> Option<Self> {
        if !self.text.contains(['%', '\\', '&']) {
            return None;
        }
        let mut inner = Self::new(&self.text);
        for start in &mut inner.starts {
            *start = self.starts.get(*start).copied().unwrap_or_default();
        }
        (inner.text.len() < self.text.len()).then_some(inner)
    }

    /// Maps a range of the text to its range in the source.
    pub(crate) fn source(&self, range: Range<usize>) -> Range<usize> {
        let at = |n: usize| self.starts.get(n).copied().unwrap_or_default();
        at(range.start)..at(range.end)
    }
}

// === impl Rough ===

impl fmt::Display for Rough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            ..120 => {
                let nanos = self.0.subsec_nanos() % 1_000_000;
                let rounded = self.0.saturating_sub(Duration::from_nanos(nanos.into()));
                write!(f, "{:?}", if rounded.is_zero() { self.0 } else { rounded })
            }
            seconds @ ..7_200 => write!(f, "{} min", seconds / 60),
            seconds @ ..172_800 => write!(f, "{} h", seconds / 3_600),
            seconds => write!(f, "{} days", seconds / 86_400),
        }
    }
}

/// Returns a part of a text, or an empty one if there is no such part.
pub(crate) fn part(text: &str, range: Range<usize>) -> &str {
    text.get(range).unwrap_or_default()
}

/// Returns the text from `start` on, or an empty one if it is shorter.
pub(crate) fn tail(text: &str, start: usize) -> &str {
    part(text, start..text.len())
}

/// Adds what the escape at the start of a text stands for. Returns its length.
fn escape(text: &str, bytes: &mut Vec<u8>) -> Option<usize> {
    if let Some((byte, length)) = byte(text) {
        bytes.push(byte);
        return Some(length);
    }
    let found = entity(text).or_else(|| units(text));
    let (c, length) = found.or_else(|| after_slash(text))?;
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    Some(length)
}

/// Returns the character of `&quot;`, `&#43;` or `&#x2B;`, as pages of HTML have it.
fn entity(text: &str) -> Option<(char, usize)> {
    let end = text.bytes().take(LONGEST_ENTITY).position(|c| c == b';')?;
    let c = match part(text, 0..end).strip_prefix('&')? {
        "quot" => '"',
        "apos" => '\'',
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        name => {
            let digits = name.strip_prefix('#')?;
            let code = match digits.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => digits.parse(),
            };
            char::from_u32(code.ok()?)?
        }
    };
    Some((c, end + 1))
}

/// Returns the byte of `%41` and `\x41`.
fn byte(text: &str) -> Option<(u8, usize)> {
    let digits = text
        .strip_prefix('%')
        .or_else(|| text.strip_prefix("\\x"))?;
    let byte = hex(digits, 2)?.try_into().ok()?;
    Some((byte, text.len() - digits.len() + 2))
}

/// Returns the character of `\u00e9`, or of two UTF-16 units as in `\ud83d\ude00`.
fn units(text: &str) -> Option<(char, usize)> {
    let (first, length) = unit(text)?;
    let second = unit(tail(text, length));
    let both = iter::once(first).chain(second.map(|(unit, _)| unit));
    let c = char::decode_utf16(both).next()?.unwrap_or('?');
    let rest = second.filter(|_| c.len_utf16() > 1);
    Some((c, length + rest.map_or(0, |(_, length)| length)))
}

fn unit(text: &str) -> Option<(u16, usize)> {
    let unit = hex(text.strip_prefix("\\u")?, 4)?;
    Some((unit.try_into().ok()?, 6))
}

/// Returns the character of `\n` or `\"`.
fn after_slash(text: &str) -> Option<(char, usize)> {
    let c = match text.strip_prefix('\\')?.chars().next()? {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        c @ ('\\' | '"' | '\'' | '`' | '/') => c,
        _ => return None,
    };
    Some((c, 2))
}

fn hex(text: &str, length: usize) -> Option<u32> {
    let digits = text.get(..length)?;
    let are_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| are_hex)
}

/// Adds the places of what syntax shows to be secret, whoever wrote the text: parts of URLs, credentials of headers, JWTs.
/// Each rule passes over the text once.
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
            let credential = part(text, word.clone()).trim_end_matches('=');
            // `Basic authentication/authorization` is a sentence, and `Bearer realm=services2024` is a challenge.
            let has_digit = credential.contains(|c: char| c.is_ascii_digit());
            if word.len() >= LEAST && has_digit && !credential.contains('=') {
                found.push(word);
            }
        }
    }
    // A JWT begins with the base64 of `{"`.
    for (at, _) in text.match_indices("eyJ") {
        // `publicKeyJwkSet` is a name.
        if !part(text, 0..at).ends_with(|c: char| c.is_ascii_alphanumeric()) {
            let word = token(text, at);
            found.extend(Some(word).filter(|word| word.len() >= LEAST));
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
    let is_token = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
    start..find_at(text, start, |c| !is_token(c))
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`' | '\\')
}

/// Returns the first place at or after `start` whose character matches `of`, or the end of the text.
fn find_at(text: &str, start: usize, of: impl Fn(char) -> bool) -> usize {
    tail(text, start).find(of).map_or(text.len(), |n| start + n)
}

/// Cuts a text to one line of at most [`LONGEST`] characters, with hidden and reordering characters escaped.
pub(crate) fn line(text: &str) -> String {
    let mut shown = String::new();
    let mut length = 0;
    for c in text.trim().chars() {
        let escaped = c.escape_default();
        let is_hidden = is_hidden(c);
        length += if is_hidden { escaped.len() } else { 1 };
        if length > LONGEST {
            break;
        } else if is_hidden {
            shown.extend(escaped);
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether a character is a control, or reorders or hides text in a terminal: Unicode's bidirectional controls,
/// default-ignorable characters, tags and selectors.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Length of `&#x10FFFF;`.
const LONGEST_ENTITY: usize = 10;

/// Fits into a log line and a terminal. The longest known text of the service has 83 characters.
const LONGEST: usize = 200;

/// Shortest credential that is told from a word.
const LEAST: usize = 16;
