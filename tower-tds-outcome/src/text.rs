//! Texts of others: their escapes, the secrets that their syntax shows, and their cut to one line.

use std::{iter, ops::Range};

/// A text, or what is left of it without its outer escapes, with the place of each part in the source.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) text: String,
    /// For each byte of `text`, where its character starts in the source.
    starts: Vec<usize>,
}

// === impl Decoded ===

impl Decoded {
    pub(crate) fn new(source: &str) -> Self {
        Self {
            text: source.to_owned(),
            starts: (0..=source.len()).collect(),
        }
    }

    /// Decodes `%XX`, `\n`, `\"`, `\u00e9`, `\u{e9}`, `\xe9`, `&quot;` and `&#43;`. Returns `None` if there is nothing to decode.
    pub(crate) fn inner(&self) -> Option<Self> {
        if !self.text.contains(ESCAPES) {
            return None;
        }
        let (mut bytes, mut starts, mut at) = (Vec::new(), Vec::new(), 0);
        while at < self.text.len() {
            let rest = tail(&self.text, at);
            let length = match escape(rest) {
                Some((length, decoded)) => {
                    bytes.extend(decoded);
                    starts.resize(bytes.len(), *self.starts.get(at)?);
                    length
                }
                None => {
                    let first = rest.chars().next().map_or(1, char::len_utf8);
                    let plain = tail(rest, first).find(ESCAPES);
                    let length = plain.map_or(rest.len(), |length| first + length);
                    bytes.extend_from_slice(part(rest, 0..length).as_bytes());
                    starts.extend_from_slice(self.starts.get(at..at + length)?);
                    length
                }
            };
            at += length;
        }
        starts.extend(self.starts.last());
        let mut text = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            // Each byte keeps its place.
            text.extend(chunk.invalid().iter().map(|_| '?'));
        }
        (text.len() < self.text.len()).then_some(Self { text, starts })
    }

    /// Maps a range of the text to its range in the source.
    pub(crate) fn source(&self, range: Range<usize>) -> Range<usize> {
        let at = |n: usize| self.starts.get(n).copied().unwrap_or_default();
        at(range.start)..at(range.end)
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

/// Returns a text without the beginning of an escape or of a character, if it was cut there.
pub(crate) fn whole(mut text: &str) -> &str {
    while let Some(at) = text
        .rfind(ESCAPES)
        .filter(|at| text.len() - at < LONGEST_ENTITY)
    {
        text = part(text, 0..at);
    }
    text.trim_end_matches('?')
}

/// Reads the escape at the start of a text: its length, and the bytes that it stands for.
fn escape(text: &str) -> Option<(usize, Vec<u8>)> {
    for mark in ["%", "\\x"] {
        if let Some(digits) = text.strip_prefix(mark) {
            let byte = number(digits.get(..2)?, 16)?;
            return Some((mark.len() + 2, vec![u8::try_from(byte).ok()?]));
        }
    }
    let named = || {
        let (name, c) = NAMED.iter().find(|(name, _)| text.starts_with(name))?;
        Some((name.len(), *c))
    };
    let (length, c) = numbered(text).or_else(|| units(text)).or_else(named)?;
    Some((length, c.to_string().into_bytes()))
}

/// Returns the character of `\u{e9}`, `&#43;` or `&#x2B;`.
fn numbered(text: &str) -> Option<(usize, char)> {
    let find = |(mark, end, radix)| Some((text.strip_prefix(mark)?, end, radix));
    let (digits, end, radix) = NUMBERED.into_iter().find_map(find)?;
    let length = digits
        .bytes()
        .take(LONGEST_ENTITY)
        .position(|byte| byte == end)?;
    let c = char::from_u32(number(part(digits, 0..length), radix)?)?;
    Some((text.len() - digits.len() + length + 1, c))
}

/// Returns the character of `\u00e9`, or of two UTF-16 units as in `\ud83d\ude00`.
fn units(text: &str) -> Option<(usize, char)> {
    let unit = |text: &str| u16::try_from(number(text.strip_prefix("\\u")?.get(..4)?, 16)?).ok();
    let both = iter::once(unit(text)?).chain(unit(tail(text, 6)));
    let c = char::decode_utf16(both).next()?.ok()?;
    Some((6 * c.len_utf16(), c))
}

fn number(digits: &str, radix: u32) -> Option<u32> {
    let are_digits = digits.chars().all(|c| c.is_digit(radix));
    u32::from_str_radix(digits, radix)
        .ok()
        .filter(|_| are_digits)
}

/// Adds the places that syntax shows to be secret in any text: parts of URLs, credentials of headers, JWTs.
/// Each rule passes over the text once.
pub(crate) fn find(text: &str, found: &mut Vec<Range<usize>>) {
    urls(text, found);
    let lower = text.to_ascii_lowercase();
    // A JWT begins with the base64 of `{"`.
    for mark in ["bearer", "basic", "eyj"] {
        let mut read = 0;
        for (at, _) in lower.match_indices(mark) {
            let is_jwt = tail(text, at).starts_with("eyJ");
            let after = at + mark.len();
            let start = if is_jwt {
                at
            } else {
                find_at(text, after, |c| !(c.is_whitespace() || c == '+'))
            };
            // `publicKeyJwkSet` is a name.
            let is_apart = if is_jwt {
                !part(text, 0..at).ends_with(|c: char| c.is_ascii_alphanumeric())
            } else {
                start > after
            };
            if at < read || !is_apart {
                continue;
            }
            let word = token(text, start);
            read = word.end;
            let credential = part(text, word.clone()).trim_end_matches('=');
            // `Basic authentication/authorization` is a sentence, and `Bearer realm=services2024` is a challenge.
            let has_digit = credential.contains(|c: char| c.is_ascii_digit());
            let is_secret = is_jwt || (has_digit && !credential.contains('='));
            found.extend(Some(word).filter(|word| is_secret && word.len() >= LEAST));
        }
    }
}

/// Finds password and query in `https://user:password@host/path?query`, the key in `https://key@host`, and the query of
/// `/path?query`.
fn urls(text: &str, found: &mut Vec<Range<usize>>) {
    let mut end = 0;
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>');
    for (slash, _) in text.match_indices('/') {
        if slash < end {
            continue;
        }
        let at = part(text, 0..slash).trim_end_matches(|c| !is_end(c)).len();
        end = find_at(text, slash, is_end);
        // The end of a sentence or a bracket stays.
        let url = part(text, at..end).trim_end_matches(|c| ".,;:)]}".contains(c));
        let start = url.find("://").map_or(0, |scheme| scheme + 3);
        let authority = tail(url, start).split(['/', '?', '#']).next();
        let authority = authority.filter(|_| start > 0).unwrap_or_default();
        let (user, rest) = authority.split_once(':').unwrap_or((authority, ""));
        // Behind the colon of a host stand only digits. A password that is not percent-encoded may have an `@`, `/`, `?` or `#`.
        let has_password = !user.starts_with('[') && rest.contains(|c: char| !c.is_ascii_digit());
        let password = start + user.len() + 1;
        let secret = match url.rfind('@') {
            Some(end) if has_password && password < end => password..end,
            // A user without a password is a key, unless it is that of `ssh://git@host`, which is the same for all.
            Some(_) if authority.contains('@') && part(url, 0..start).contains("http") => {
                start..start + user.find('@').unwrap_or(user.len())
            }
            _ => start..start,
        };
        let query = tail(url, secret.end).find('?');
        let query = query.map(|query| secret.end + query);
        found.push(at + secret.start..at + secret.end);
        let query = query.filter(|query| part(url, 0..*query).contains('/'));
        found.extend(query.map(|query| at + query + 1..at + url.len()));
    }
}

/// Returns the word of a credential (RFC 9110, section 11.2) at a place.
fn token(text: &str, start: usize) -> Range<usize> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
    start..find_at(text, start, |c| !is_token(c))
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

/// Beginnings of escapes.
const ESCAPES: [char; 3] = ['%', '\\', '&'];

/// Escapes of a character by its number: beginning, end, and radix.
const NUMBERED: [(&str, u8, u32); 3] = [("\\u{", b'}', 16), ("&#x", b';', 16), ("&#", b';', 10)];

/// Escapes of a character by a name.
const NAMED: [(&str, char); 12] = [
    ("\\n", '\n'),
    ("\\r", '\r'),
    ("\\t", '\t'),
    ("\\\\", '\\'),
    ("\\\"", '"'),
    ("\\'", '\''),
    ("\\/", '/'),
    ("&quot;", '"'),
    ("&apos;", '\''),
    ("&amp;", '&'),
    ("&lt;", '<'),
    ("&gt;", '>'),
];

/// Length of `&#x10FFFF;`.
const LONGEST_ENTITY: usize = 10;

/// Fits into a log line and a terminal. The longest known text of the service has 83 characters.
const LONGEST: usize = 200;

/// Shortest credential that differs enough from a word.
const LEAST: usize = 16;
