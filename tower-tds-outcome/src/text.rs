//! Texts as they are written in other texts: escaped, percent-encoded, cut.

use std::ops::Range;

/// A character, decoded, and where it stands in the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub(crate) at: usize,
    pub(crate) c: char,
    /// The backslashes before it, of which nested texts have several.
    pub(crate) slashes: usize,
}

/// Decodes `%XX`, `\n`, `\"`, `\u{e9}`, `\xe9` and HTML's entities, also where they are nested.
pub(crate) fn units(text: &str) -> Vec<Unit> {
    let mut units = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(c) = tail(text, at).chars().next() {
        let (c, slashes, end) = escape(text, at).unwrap_or((c, 0, at.saturating_add(c.len_utf8())));
        units.push(Unit { at, c, slashes });
        at = end;
    }
    units
}

/// The text from a place on; empty if there is none.
pub(crate) fn tail(text: &str, at: usize) -> &str {
    text.get(at..).unwrap_or_default()
}

/// The escape that begins here: what it stands for, its backslashes, and its end.
fn escape(text: &str, at: usize) -> Option<(char, usize, usize)> {
    let rest = tail(text, at);
    if rest.starts_with('%') {
        let (byte, end) = ENCODED_AGAIN
            .rev()
            .find_map(|times| percent(text, at, times))?;
        let c = char::from(byte);
        return Some((if c.is_ascii() { c } else { OTHER }, 0, end));
    }
    if rest.starts_with('&') {
        let (c, name) = ENTITIES.iter().find(|(_, name)| rest.starts_with(name))?;
        return Some((*c, 0, at.saturating_add(name.len())));
    }
    let slashes = rest
        .len()
        .saturating_sub(rest.trim_start_matches('\\').len());
    let from = at.saturating_add(slashes);
    let c = tail(text, from).chars().next().filter(|_| slashes > 0)?;
    if let Some((c, end)) = hex(text, from) {
        return Some((c, slashes, end));
    }
    let meant = match c {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        '"' | '\'' | '/' | '`' => c,
        _ => return None,
    };
    Some((meant, slashes, from.saturating_add(1)))
}

/// The byte of `%41`, or of `%2541`, which was encoded once more, and its end.
pub(crate) fn percent(text: &str, at: usize, encoded_again: usize) -> Option<(u8, usize)> {
    let mut digits = tail(text, at).strip_prefix('%')?;
    for _ in 0..encoded_again {
        digits = digits.strip_prefix("25")?;
    }
    let start = text.len().saturating_sub(digits.len());
    let byte = u8::try_from(number(text, start, 2)?).ok()?;
    Some((byte, start.saturating_add(2)))
}

/// The character of `x41`, `u0041` or `u{41}`, which a backslash precedes, and its end.
pub(crate) fn hex(text: &str, at: usize) -> Option<(char, usize)> {
    let rest = tail(text, at);
    let start = at.saturating_add(1);
    if let Some(inside) = rest.strip_prefix("u{") {
        let (digits, _) = inside.split_once('}')?;
        let c = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
        return Some((c, at.saturating_add(digits.len()).saturating_add(3)));
    }
    let length = match rest.chars().next()? {
        'x' => 2,
        'u' => 4,
        _ => return None,
    };
    let c = char::from_u32(number(text, start, length)?)?;
    Some((c, start.saturating_add(length)))
}

fn number(text: &str, at: usize, length: usize) -> Option<u32> {
    let digits = text.get(at..at.checked_add(length)?)?;
    let are_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| are_hex)
}

/// One line of at most [`LONGEST`] characters, with hidden and reordering characters escaped.
pub(crate) fn line(text: &str) -> String {
    let mut shown = String::new();
    let mut length: usize = 0;
    for c in text.trim().chars() {
        let start = shown.len();
        let wide = if is_hidden(c) {
            shown.extend(c.escape_default());
            shown.len().saturating_sub(start)
        } else {
            shown.push(c);
            1
        };
        length = length.saturating_add(wide);
        if length > LONGEST {
            shown.truncate(start);
            break;
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

pub(crate) const ENTITIES: [(char, &str); 7] = [
    ('"', "&quot;"),
    ('"', "&#34;"),
    ('\'', "&#39;"),
    ('\'', "&apos;"),
    ('&', "&amp;"),
    ('<', "&lt;"),
    ('>', "&gt;"),
];

/// What stands in place of a secret.
pub(crate) const REDACTED: &str = "[redacted]";

/// How often a percent-encoded text was encoded again by the texts around it.
pub(crate) const ENCODED_AGAIN: Range<usize> = 0..3;

/// A byte that is no ASCII: part of a character that no rule asks about.
const OTHER: char = '\u{fffd}';

/// A length for log lines and terminals. The longest known text of the service has 83 characters.
const LONGEST: usize = 200;
