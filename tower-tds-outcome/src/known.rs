//! A known value, and the forms in which a text may contain it.

use std::hint::black_box;

use crate::text::{ENCODED_AGAIN, ENTITIES, hex, percent, tail};

/// A value that is wiped when it is dropped.
pub(crate) struct Value {
    bytes: Vec<u8>,
}

// === impl Value ===

impl Value {
    pub(crate) fn new(value: &str) -> Self {
        let bytes = value.as_bytes().to_vec();
        Self { bytes }
    }

    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes).unwrap_or_default()
    }

    /// Marks each place of a text that contains the value in one of its forms.
    pub(crate) fn mark(&self, text: &str, hidden: &mut [bool]) {
        let value = self.as_str();
        let is_long = value.chars().count() >= SHORTEST_PART;
        find(text, value, |start, end| {
            if is_long || is_word(text, start, end) {
                set(hidden, start, end);
            }
        });
        let numbers: Vec<_> = self.bytes.iter().map(u8::to_string).collect();
        if numbers.len() > 3 {
            find(text, &numbers.join(", "), |start, end| {
                set(hidden, start, end)
            });
        }
        if !is_long {
            return;
        }
        for encoded in inside_base64(&self.bytes) {
            let url = encoded.replace('+', "-").replace('/', "_");
            for form in [&encoded, &url] {
                find(text, form, |start, end| {
                    // An id before the value and what follows are in the same groups of letters.
                    let before = text.get(..start).unwrap_or_default();
                    let start = before.trim_end_matches(is_base64).len();
                    let after = tail(text, end);
                    let rest = after
                        .len()
                        .saturating_sub(after.trim_start_matches(is_base64).len());
                    set(hidden, start, end.saturating_add(rest));
                });
            }
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.bytes.fill(0);
        // Keeps the compiler from removing a write that nothing reads.
        black_box(&self.bytes);
    }
}

pub(crate) fn set(hidden: &mut [bool], start: usize, end: usize) {
    if let Some(part) = hidden.get_mut(start..end) {
        part.fill(true);
    }
}

/// Calls `found` with each place of a text that contains the value, whatever its escapes are.
fn find(text: &str, value: &str, mut found: impl FnMut(usize, usize)) {
    for (start, _) in text.char_indices() {
        if let Some(end) = end_of(text, start, value) {
            found(start, end);
        }
    }
}

/// The end of the value that begins here. A text may mix forms, and may be cut inside of the value.
fn end_of(text: &str, start: usize, value: &str) -> Option<usize> {
    let mut ends = vec![start];
    for (n, c) in value.chars().enumerate() {
        let mut next = Vec::new();
        for at in ends {
            if at >= text.len() && n >= SHORTEST_PART {
                return Some(at);
            }
            forms(text, at, c, &mut next);
        }
        next.sort_unstable();
        next.dedup();
        if next.is_empty() {
            return None;
        }
        ends = next;
    }
    ends.last().copied()
}

/// The ends of each form of `c` that begins here.
fn forms(text: &str, at: usize, c: char, ends: &mut Vec<usize>) {
    let rest = tail(text, at);
    let Some(first) = rest.chars().next() else {
        return;
    };
    if first == c {
        ends.push(at.saturating_add(c.len_utf8()));
    }
    match first {
        '+' if c == ' ' => ends.push(at.saturating_add(1)),
        '%' => ends.extend(
            ENCODED_AGAIN.filter_map(|times| of_bytes(at, c, |at| percent(text, at, times))),
        ),
        '&' => {
            let names = ENTITIES
                .iter()
                .filter(|(of, name)| *of == c && rest.starts_with(name));
            ends.extend(names.map(|(_, name)| at.saturating_add(name.len())));
        }
        '\\' => {
            let slashes = rest
                .len()
                .saturating_sub(rest.trim_start_matches('\\').len());
            let from = at.saturating_add(slashes);
            if c == '\\' {
                ends.extend(at.saturating_add(1)..=from);
            }
            let simple = match tail(text, from).chars().next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some(other) => other,
                None => return,
            };
            if simple == c && c != '\\' {
                ends.push(from.saturating_add(1));
            }
            let (decoded, end) = hex(text, from).unwrap_or(('\0', from));
            if decoded == c && end > from {
                ends.push(end);
            }
            // A pair of surrogates, and the bytes of a byte string.
            let pair = |at: usize| hex(text, at.checked_add(slashes)?);
            ends.extend(surrogates(rest, slashes, c).map(|length| at.saturating_add(length)));
            ends.extend(of_bytes(at, c, |at| {
                let (decoded, end) = pair(at)?;
                u8::try_from(u32::from(decoded))
                    .ok()
                    .map(|byte| (byte, end))
            }));
        }
        _ => {}
    }
}

/// The end of all bytes of `c`.
fn of_bytes(at: usize, c: char, read: impl Fn(usize) -> Option<(u8, usize)>) -> Option<usize> {
    let mut room = [0; 4];
    let mut bytes = c.encode_utf8(&mut room).bytes();
    bytes.try_fold(at, |at, byte| {
        read(at)
            .filter(|(found, _)| *found == byte)
            .map(|(_, end)| end)
    })
}

/// The length of `\ud83d\ude00`, if that is `c`.
fn surrogates(rest: &str, slashes: usize, c: char) -> Option<usize> {
    let slash = rest.get(..slashes)?;
    let mut room = [0; 2];
    let units = c.encode_utf16(&mut room);
    let form: String = units
        .iter()
        .map(|unit| format!("{slash}u{unit:04x}"))
        .collect();
    let found = rest.get(..form.len()).filter(|_| c.len_utf16() == 2)?;
    found.eq_ignore_ascii_case(&form).then_some(form.len())
}

/// Whether the part stands alone: no letter, digit or `_` is beside it that is not of an escape.
fn is_word(text: &str, start: usize, end: usize) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    let before = text.get(..start).unwrap_or_default();
    let mut last = before.chars().rev();
    let is_escape = percent(text, start.wrapping_sub(3), 0).is_some()
        || matches!(
            (last.next(), last.next()),
            (Some('n' | 'r' | 't'), Some('\\'))
        );
    (is_escape || !before.ends_with(joins)) && !tail(text, end).starts_with(joins)
}

/// The letters that stand for the bytes in base64 at each of the three offsets, without those that depend on others.
fn inside_base64(bytes: &[u8]) -> [String; 3] {
    [0_usize, 1, 2].map(|offset| {
        let padded: Vec<u8> = std::iter::repeat_n(0, offset)
            .chain(bytes.iter().copied())
            .collect();
        let group = |group: &[u8]| {
            let byte = |n: usize| u32::from(group.get(n).copied().unwrap_or_default());
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            [18, 12, 6, 0].map(|shift| {
                let digit = usize::try_from(bits >> shift & 63).unwrap_or_default();
                char::from(DIGITS.get(digit).copied().unwrap_or_default())
            })
        };
        let letters: Vec<char> = padded.chunks(3).flat_map(group).collect();
        let end = padded.len().saturating_mul(8) / 6;
        let start = [0, 2, 3].get(offset).copied().unwrap_or_default();
        letters.get(start..end).unwrap_or_default().iter().collect()
    })
}

/// Reads base64 in either alphabet; `None` if it is not UTF-8.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let (mut bits, mut held, mut bytes) = (0_u32, 0, Vec::new());
    for letter in text.trim_end_matches('=').bytes() {
        let letter = match letter {
            b'-' => b'+',
            b'_' => b'/',
            letter => letter,
        };
        let digit = DIGITS.iter().position(|digit| *digit == letter)?;
        bits = bits << 6 | u32::try_from(digit).ok()?;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
    }
    String::from_utf8(bytes).ok()
}

fn is_base64(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_' | '=')
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A shorter value, or a shorter part of a value at the end of a text that was cut, may be a word.
const SHORTEST_PART: usize = 8;
