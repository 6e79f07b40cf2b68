//! Texts as they stand in other texts: escaped, percent-encoded, cut.

use std::ops::Range;

/// A text without its escapes, and where each part of it stands in the source.
///
/// Each byte is one character, U+0000 to U+00FF, because an escape may stand for a part of a character.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    pub(crate) text: String,
    starts: Vec<usize>,
    length: usize,
}

// === impl Decoded ===

impl Decoded {
    /// Decodes `%XX`, `\n`, `\"`, `\u{e9}`, `\u00e9`, `\xe9` and HTML's entities, however often they were escaped again.
    pub(crate) fn new(source: &str) -> Self {
        let mut decoded = Self {
            length: source.len(),
            ..Self::default()
        };
        let mut rest = source;
        while let Some(first) = rest.chars().next() {
            let end = if let Some((byte, end)) = escaped_byte(rest) {
                decoded.push(source.len() - rest.len(), byte);
                end
            } else {
                let (c, end) = escaped_char(rest).unwrap_or((first, first.len_utf8()));
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    decoded.push(source.len() - rest.len(), byte);
                }
                end
            };
            rest = part(rest, end..rest.len());
        }
        decoded
    }

    fn push(&mut self, start: usize, byte: u8) {
        self.text.push(char::from(byte));
        self.starts.resize(self.text.len(), start);
    }

    /// The place in the source of a part of the text.
    pub(crate) fn source(&self, range: Range<usize>) -> Range<usize> {
        let at = |n: usize| self.starts.get(n).copied().unwrap_or(self.length);
        at(range.start)..at(range.end)
    }
}

/// A part of a text; empty if there is no such part.
pub(crate) fn part(text: &str, range: Range<usize>) -> &str {
    text.get(range).unwrap_or_default()
}

/// The byte that the escape at the start of a text stands for, and the end of the escape.
fn escaped_byte(text: &str) -> Option<(u8, usize)> {
    if let Some(mut digits) = text.strip_prefix('%') {
        // `%2541` was encoded twice.
        while let Some(again) = digits.strip_prefix("25").filter(|it| hex(it, 2).is_some()) {
            digits = again;
        }
        let byte = u8::try_from(hex(digits, 2)?).ok()?;
        return Some((byte, text.len() - digits.len() + 2));
    }
    if text.starts_with('&') {
        let entity = ENTITIES.iter().find(|(name, _)| text.starts_with(name));
        return entity.map(|(name, byte)| (*byte, name.len()));
    }
    let letters = text.trim_start_matches('\\');
    let slashes = text.len() - letters.len();
    let byte = match letters.bytes().next().filter(|_| slashes > 0) {
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(quote @ (b'"' | b'\'' | b'`' | b'/')) => quote,
        Some(b'x') => {
            let byte = u8::try_from(hex(part(letters, 1..3), 2)?).ok()?;
            return Some((byte, slashes + 3));
        }
        _ => return None,
    };
    Some((byte, slashes + 1))
}

/// The character that the backslashes at the start of a text stand for, and the end of the escape.
fn escaped_char(text: &str) -> Option<(char, usize)> {
    let slashes = |text: &str| text.len() - text.trim_start_matches('\\').len();
    let start = slashes(text);
    let letters = text.get(start..).filter(|_| start > 0)?;
    let end = start + 5;
    if let Some(digits) = letters.strip_prefix("u{") {
        let length = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
        let c = hex(digits, length).and_then(char::from_u32);
        if let Some(c) = c.filter(|_| part(digits, length..length + 1) == "}") {
            return Some((c, start + length + 3));
        }
    }
    // JSON writes `😀` as two escapes, `\ud83d\ude00`.
    let unit = |text: &str| u16::try_from(hex(text.strip_prefix('u')?, 4)?).ok();
    if let Some(first) = unit(letters) {
        let next = part(text, end..text.len());
        let low = slashes(next);
        let pair = [first, unit(part(next, low..next.len())).unwrap_or_default()];
        return match char::decode_utf16(pair).next()? {
            Ok(c) if c.len_utf16() == 2 => Some((c, end + low + 5)),
            c => Some((c.unwrap_or(char::REPLACEMENT_CHARACTER), end)),
        };
    }
    Some(('\\', start))
}

fn hex(text: &str, length: usize) -> Option<u32> {
    let digits = text.get(..length)?;
    let are_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| are_hex)
}

/// One line of at most [`LONGEST`] characters, with hidden and reordering characters escaped.
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

const ENTITIES: [(&str, u8); 7] = [
    ("&quot;", b'"'),
    ("&#34;", b'"'),
    ("&#39;", b'\''),
    ("&apos;", b'\''),
    ("&amp;", b'&'),
    ("&lt;", b'<'),
    ("&gt;", b'>'),
];

/// A length for log lines and terminals. The longest known text of the service has 83 characters.
const LONGEST: usize = 200;
