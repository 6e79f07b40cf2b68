//! What only a secret looks like. Each rule marks parts of a text; none looks at what another one marked.

use std::ops::Range;

use crate::{
    known::set,
    text::{REDACTED, Unit, units},
};

/// A text as decoded characters.
struct Scan<'a> {
    text: &'a str,
    units: Vec<Unit>,
}

/// How sure the text is that a value follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A query, a form, or JSON.
    Pair,
    /// A sentence may go on after the colon.
    Prose,
}

/// Marks all shapes of secrets in a text.
pub(crate) fn mark(text: &str, hidden: &mut [bool]) {
    let scan = Scan {
        text,
        units: units(text),
    };
    let mut spared = Vec::new();
    let mut found = Vec::new();
    scan.passwords_of_urls(&mut found);
    scan.credentials(&mut found);
    scan.named(&mut found, &mut spared);
    scan.runs(&mut found, &spared);
    for range in found {
        set(hidden, scan.at(range.start), scan.at(range.end));
    }
}

// === impl Scan ===

impl Scan<'_> {
    /// The byte at which a character begins.
    fn at(&self, n: usize) -> usize {
        self.units.get(n).map_or(self.text.len(), |unit| unit.at)
    }

    fn c(&self, n: usize) -> Option<char> {
        self.units.get(n).map(|unit| unit.c)
    }

    fn is(&self, n: usize, of: impl Fn(char) -> bool) -> bool {
        self.c(n).is_some_and(of)
    }

    /// The first place from `n` on that is not `of`.
    fn skip(&self, n: usize, of: impl Fn(char) -> bool) -> usize {
        let rest = self.units.get(n..).unwrap_or_default();
        n.saturating_add(rest.iter().take_while(|unit| of(unit.c)).count())
    }

    /// The first place of the characters before `n` that are `of`.
    fn back(&self, n: usize, of: impl Fn(char) -> bool) -> usize {
        let rest = self.units.get(..n).unwrap_or_default();
        n.saturating_sub(rest.iter().rev().take_while(|unit| of(unit.c)).count())
    }

    fn word(&self, range: Range<usize>) -> String {
        let units = self.units.get(range).unwrap_or_default();
        units.iter().map(|unit| unit.c).collect()
    }

    fn begins_word(&self, n: usize) -> bool {
        !n.checked_sub(1)
            .is_some_and(|before| self.is(before, |c| c.is_alphanumeric()))
    }

    /// The password in `https://user:password@host`.
    fn passwords_of_urls(&self, found: &mut Vec<Range<usize>>) {
        for n in 0..self.units.len() {
            let start = n.saturating_add(3);
            if !self.is(n, |c| c == ':') || self.word(n..start) != "://" {
                continue;
            }
            let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`');
            let all = self.skip(start, |c| !ends(c));
            let host = self.skip(start, |c| !ends(c) && !matches!(c, '/' | '?' | '#'));
            let colon = self.skip(start, |c| c != ':').saturating_add(1);
            let port = self.skip(colon, |c| c.is_ascii_digit());
            let last_at = |end: usize| (start..end).rev().find(|n| self.c(*n) == Some('@'));
            // A password that was not encoded may contain the characters that end a host.
            let is_number = self.is(start, |c| c == '[') || port >= host;
            let is_cut = last_at(host).is_none() && colon < host && !is_number;
            let end = if is_cut { last_at(all) } else { last_at(host) };
            if let Some(end) = end.filter(|end| colon < *end) {
                found.push(colon..end);
            }
        }
    }

    /// JWTs, and what follows `Bearer` and `Basic`.
    fn credentials(&self, found: &mut Vec<Range<usize>>) {
        let is_credential = |c: char| is_run(c) || matches!(c, '.' | '~' | '=');
        let last = |end| self.back(end, |c| matches!(c, '.' | '-' | '='));
        for n in (0..self.units.len()).filter(|n| self.begins_word(*n)) {
            let is_jwt = self.word(n..n.saturating_add(3)) == "eyJ";
            let length = self.skip(n, |c| c.is_ascii_alphabetic()).saturating_sub(n);
            let scheme = self.word(n..n.saturating_add(length.min(7))).to_lowercase();
            if !is_jwt && (scheme.len() != length || !SCHEMES.contains(&&*scheme)) {
                continue;
            }
            let start = if is_jwt {
                n
            } else {
                let joint = |c: char| {
                    c.is_whitespace()
                        || matches!(c, ':' | '=' | '"' | '\'' | '+' | '`' | '<' | '[' | '(')
                };
                let end = n.saturating_add(length);
                let start = self.skip(end, joint);
                if start == end {
                    continue;
                }
                start
            };
            let all = self.skip(start, is_credential);
            let end = last(all).max(start);
            let word = self.word(start..end);
            let least = if is_jwt { LEAST_JWT } else { LEAST_CREDENTIAL };
            if word.len() >= least && (is_jwt || mixes(&word)) {
                // The padding goes with it.
                let padded = self.skip(end, |c| c == '=');
                found.push(start..padded);
            }
        }
    }

    /// Values of the names of secrets.
    fn named(&self, found: &mut Vec<Range<usize>>, spared: &mut Vec<Range<usize>>) {
        for n in 0..self.units.len() {
            if !self.is(n, |c| matches!(c, ':' | '=')) {
                continue;
            }
            let quote = |c: char| matches!(c, '"' | '\'' | '`' | ']');
            let name_end = self.back(self.back(n, char::is_whitespace), quote);
            let name_start = self.back(name_end, |c| {
                c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
            });
            let name = self.word(name_start..name_end);
            let is_id = is_client_id(&name);
            if !is_id && !is_name(&name) {
                continue;
            }
            // `key::Error` is a path, `token://` an address, `==` a comparison.
            let after = self.skip(n.saturating_add(1), |c| matches!(c, '=' | '>'));
            if self.c(after) == Some(':') || self.word(after..after.saturating_add(2)) == "//" {
                continue;
            }
            let blank = self.skip(after, char::is_whitespace);
            let is_apart = blank > after || self.is(n.saturating_sub(1), char::is_whitespace);
            let Some((value, is_quoted)) = self.value(blank) else {
                continue;
            };
            if is_id {
                spared.push(value);
                continue;
            }
            // Alone it is also the key of a cache or a map.
            let is_key = name.eq_ignore_ascii_case("key");
            let is_strict = ["secret", "password"]
                .iter()
                .any(|it| name.to_ascii_lowercase().ends_with(it));
            let is_quoted = is_quoted && (is_strict || self.is(n.saturating_sub(1), quote));
            let form = if is_apart && !is_quoted {
                Form::Prose
            } else {
                Form::Pair
            };
            let value_of = self.word(value.clone());
            let is_plain = is_key && form == Form::Prose && is_numbered(&value_of);
            if !is_plain && is_value(&value_of, form, is_strict) {
                found.push(value);
            }
        }
    }

    /// The value that begins here, without its quotes.
    fn value(&self, start: usize) -> Option<(Range<usize>, bool)> {
        // `Some("…")`, `["…"]`, `b"…"`.
        let mut n = start;
        for _ in 0..3 {
            let word = self.skip(n, |c| c.is_ascii_alphanumeric() || c == '_');
            if self.is(word, |c| matches!(c, '(' | '[')) {
                n = word.saturating_add(1);
            }
        }
        if self.is(n, |c| matches!(c, 'b' | 'r')) && self.is(n.saturating_add(1), |c| c == '"') {
            n = n.saturating_add(1);
        }
        let open = *self.units.get(n)?;
        if matches!(open.c, '"' | '\'' | '`') {
            let inside = n.saturating_add(1);
            let closes = |unit: &Unit| unit.c == open.c && unit.slashes == open.slashes;
            let length = self
                .units
                .get(inside..)?
                .iter()
                .take(LONGEST_VALUE)
                .position(closes);
            // A text that was cut has no closing quote.
            let end = length.map_or(self.units.len(), |length| inside.saturating_add(length));
            return Some((inside..end, true));
        }
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '&' | '<' | '`');
        let mut end = n;
        while self.is(end, |c| !ends(c)) {
            // A list of pairs goes on behind a comma or a semicolon.
            let next = end.saturating_add(1);
            if self.is(end, |c| matches!(c, ',' | ';')) {
                let name = self.skip(next, |c| {
                    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '"' | ' ' | '\'')
                });
                if self.is(name, |c| matches!(c, '=' | ':')) {
                    break;
                }
            }
            end = next;
        }
        let end = self.back(end, |c| {
            matches!(c, ',' | ';' | '.' | ':' | ')' | ']' | '}' | '>')
        });
        Some((n..end.max(n), false))
    }

    /// Long runs that mix letters with digits.
    fn runs(&self, found: &mut Vec<Range<usize>>, spared: &[Range<usize>]) {
        let mut n = 0;
        while n < self.units.len() {
            let end = self.skip(n, is_run);
            let is_spared = spared.iter().any(|range| range.contains(&n));
            if end.saturating_sub(n) >= LEAST_RUN && !is_spared {
                found.extend(self.odd_part(n..end));
            }
            n = end.saturating_add(1);
        }
    }

    /// A part and its neighbours behind a dot or a tilde, if they look like more of it.
    fn widened(&self, mut part: Range<usize>) -> Range<usize> {
        let joint = |n: usize| self.is(n, |c| matches!(c, '.' | '~'));
        let is_odd = |word: &str| mixes(word) && !is_wordy(word) && !has_one_case(word);
        while let Some(end) = part.start.checked_sub(1).filter(|n| joint(*n)) {
            let start = self.back(end, |c| is_run(c) && c != '/');
            if !is_odd(&self.word(start..end)) {
                break;
            }
            part.start = start;
        }
        while joint(part.end) {
            let start = part.end.saturating_add(1);
            let end = self.skip(start, |c| is_run(c) && c != '/');
            if !is_odd(&self.word(start..end)) {
                break;
            }
            part.end = end;
        }
        part
    }

    /// The part of a run that is no path of words.
    fn odd_part(&self, run: Range<usize>) -> Option<Range<usize>> {
        let dot = |n: usize, beside: usize| {
            self.c(n) == Some('.') && self.is(beside, |c| c.is_ascii_alphanumeric())
        };
        let before = run.start.checked_sub(1);
        let is_behind_dot = before.is_some_and(|n| dot(n, n.wrapping_sub(1)));
        let is_before_dot = dot(run.end, run.end.saturating_add(1));
        // A path begins with a slash, a host or a port; base64 does not.
        let is_path = self.c(run.start) == Some('/')
            || before.is_some_and(|n| self.is(n, |c| matches!(c, '.' | ':')));
        let mut odd: Option<Range<usize>> = None;
        let mut start = run.start;
        while start <= run.end {
            let end = self.skip(start, |c| is_run(c) && c != '/').min(run.end);
            let piece = self.word(start..end);
            let is_dotted =
                (is_behind_dot && start == run.start) || (is_before_dot && end == run.end);
            let is_name = is_wordy(&piece) || is_dotted && has_one_case(&piece);
            if !is_name {
                odd = Some(odd.map_or(start, |odd| odd.start)..end);
            }
            start = end.saturating_add(1);
        }
        let odd = if is_path { odd? } else { odd.map(|_| run)? };
        let word = self.word(odd.clone());
        (word.len() >= LEAST_RUN && mixes(&word)).then(|| self.widened(odd))
    }
}

fn is_run(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '_' | '-')
}

fn mixes(word: &str) -> bool {
    word.contains(|c: char| c.is_ascii_alphabetic()) && word.contains(|c: char| c.is_ascii_digit())
}

fn has_one_case(word: &str) -> bool {
    let lower = word.contains(|c: char| c.is_ascii_lowercase());
    !(lower && word.contains(|c: char| c.is_ascii_uppercase()))
}

/// Whether a name is one of [`NAMES`], or ends with one as in `access_token`, `X-Api-Key` and `clientSecret`.
fn is_name(name: &str) -> bool {
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let lower = name.to_ascii_lowercase();
    NAMES.split(' ').any(|known| {
        let Some(before) = lower.strip_suffix(known) else {
            return false;
        };
        let rest = name.get(before.len()..).unwrap_or_default();
        let is_hump = rest.starts_with(|c: char| c.is_ascii_uppercase())
            && !name.chars().all(|c| c.is_ascii_uppercase());
        before.is_empty() || before.ends_with(['_', '-']) || is_hump
    })
}

fn is_client_id(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['_', '-'], "");
    name.ends_with("clientid")
}

/// Whether a value may be a secret, and not a word or a sentence.
fn is_value(value: &str, form: Form, is_strict: bool) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric();
    if value.chars().count() < LEAST_VALUE || value.contains(REDACTED) || !value.contains(letters) {
        return false;
    }
    if value.contains(char::is_whitespace) {
        let plain = |word: &str| {
            word.chars()
                .all(|c| c.is_alphabetic() || "'\"`.,;:!?()".contains(c))
                || word.chars().all(|c| c.is_ascii_digit() || ".,".contains(c))
        };
        return !value.split_whitespace().all(plain);
    }
    let value = value.trim_end_matches(['!', '?']);
    if value.chars().all(char::is_alphabetic) && (has_one_case(value) || is_capitalised(value)) {
        return false;
    }
    if form == Form::Pair {
        return true;
    }
    // `token: InvalidSignature` and `secret: not_found` name errors, `key: not-before` a rule, `key: /etc/ssl/server.key`
    // a file. A password may be words with hyphens.
    let is_word = |part: &str| part.chars().all(char::is_alphabetic) && is_wordy(part);
    let is_path = !is_strict || value.contains('/');
    !value
        .split(|c| c == '_' || is_path && "-./:".contains(c))
        .all(is_word)
}

/// Whether a key is made of words and numbers, as in `order-12345`.
fn is_numbered(key: &str) -> bool {
    let parts = || key.split(['_', '-', ':', '/', '.']);
    let is_number = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let is_word = |part: &str| part.chars().all(char::is_alphabetic) && is_wordy(part);
    parts().count() > 1 && parts().all(|part| is_number(part) || is_word(part))
}

fn is_capitalised(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(char::is_uppercase) && letters.all(char::is_lowercase)
}

/// Whether a word is made of words, numbers and UUIDs, as names in a path and in code are.
fn is_wordy(word: &str) -> bool {
    if word.len() == 36
        && word.bytes().enumerate().all(|(n, b)| {
            if UUID.contains(&n) {
                b == b'-'
            } else {
                b.is_ascii_hexdigit()
            }
        })
    {
        return true;
    }
    // A UUID behind a name.
    if let Some((before, uuid)) = word.split_at_checked(word.len().saturating_sub(36))
        && !before.is_empty()
        && is_wordy(uuid)
        && uuid.len() == 36
    {
        return is_wordy(before);
    }
    let parts = || word.split(['_', '-', '+']).filter(|part| !part.is_empty());
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_number = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let numbers = parts().filter(|part| is_number(part)).count();
    // Dates are numbers with hyphens; other names have more letters than digits.
    let few = digits.saturating_mul(3) <= word.len() || numbers == parts().count();
    few && parts().all(|part| is_number(part) && part.len() <= LONGEST_NUMBER || is_one_word(part))
}

/// Whether letters, with digits at one place, are pronounceable: `v2`, `sha256`, `RSA256withSHA`, `UnknownIssuer`.
fn is_one_word(part: &str) -> bool {
    let letters: Vec<_> = part
        .split(|c: char| c.is_ascii_digit())
        .filter(|it| !it.is_empty())
        .collect();
    let is_whole = match letters.as_slice() {
        [] | [_] => true,
        [first, last] => {
            first.len() > 1
                && last.len() > 1
                && !part.starts_with(|c: char| c.is_ascii_digit())
                && !part.ends_with(|c: char| c.is_ascii_digit())
        }
        _ => false,
    };
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    is_whole && digits <= MOST_DIGITS && letters.into_iter().all(is_pronounceable)
}

fn is_pronounceable(letters: &str) -> bool {
    if letters.len() <= 3 {
        return true;
    }
    let capitals = letters.as_bytes().windows(2);
    // Each capital behind a small letter begins a hump.
    let humps = capitals
        .filter(|two| {
            two.first().is_some_and(u8::is_ascii_lowercase)
                && two.last().is_some_and(u8::is_ascii_uppercase)
        })
        .count();
    let longest = letters
        .split(|c| "aeiouyAEIOUY".contains(c))
        .map(str::len)
        .max();
    let is_mixed =
        humps > 0 && letters.len() < humps.saturating_add(1).saturating_mul(SHORTEST_HUMP);
    !is_mixed && longest <= Some(MOST_CONSONANTS)
}

/// Names of secrets, in lower case.
const NAMES: &str =
    "client_secret secret token password passwd pwd passphrase sig key apikey authorization";

const SCHEMES: [&str; 2] = ["bearer", "basic"];

/// The places of the hyphens of a UUID.
const UUID: [usize; 4] = [8, 13, 18, 23];

/// A run of 24 letters and digits has 142 bits if it is random.
const LEAST_RUN: usize = 24;
const LEAST_CREDENTIAL: usize = 16;
const LEAST_VALUE: usize = 8;
/// `eyJ` and the rest of the shortest header.
const LEAST_JWT: usize = 10;
const LONGEST_VALUE: usize = 16 * 1024;
/// As in `AES256` and `AADSTS70002`.
const MOST_DIGITS: usize = 5;
/// A time in milliseconds.
const LONGEST_NUMBER: usize = 13;
/// The letters of a hump on average. Random letters have a capital behind a small one at every fourth place.
const SHORTEST_HUMP: usize = 4;
/// As in `HTTPS`.
const MOST_CONSONANTS: usize = 5;
