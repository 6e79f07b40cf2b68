//! Handle that holds secrets, and takes them out of texts.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, Engine as _};
use http::HeaderValue;
use zeroize::Zeroizing;

use crate::{
    shapes,
    text::{self, Decoded, part, tail},
};

#[cfg(test)]
mod tests;

/// Holds the secrets of your program, and takes them out of texts before these are shown.
///
/// Use a layer's handle for your own logs as well: the builder fills it with the client secret, the tokens, the
/// assertions and the passwords of proxies. Without any value it still finds what only a secret looks like.
///
/// It holds the last four values of each name, so that a text about the token that was just replaced is also clean. Do
/// not add a client id, which is public and helps to find a fault.
///
/// # Clone
///
/// Clones share the values.
///
/// # Examples
///
/// ```
/// use tower_tds_outcome::Secrets;
///
/// let secrets = Secrets::default();
/// secrets.add("password of the proxy", "pa55+word");
/// assert_eq!(secrets.redact("proxy: user=me&pw=pa55%2bword"), "proxy: user=me&pw=[redacted]");
/// assert!(!format!("{secrets:?}").contains("pa55"));
/// ```
#[derive(Clone, Default)]
pub struct Secrets(Arc<Mutex<Vec<Known>>>);

/// Name and value, which is overwritten when it is dropped.
type Known = (&'static str, Zeroizing<String>);

// === impl Secrets ===

impl Secrets {
    /// Adds a value, which takes the place of the oldest one if there are four of its name.
    ///
    /// Under eight characters, a value is only replaced as a whole word, because it may be a part of one.
    pub fn add(&self, name: &'static str, value: &str) {
        let value = value.trim();
        if value.is_empty() {
            return;
        }
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Added again, a value becomes the newest one, and those are in front.
        values.retain(|(_, known)| **known != value);
        values.insert(0, (name, value.to_owned().into()));
        let mut of_name = 0;
        values.retain(|(of, _)| {
            of_name += usize::from(*of == name);
            *of != name || of_name <= KEPT
        });
    }

    /// Adds the credential of an `Authorization` header, and the password inside if its scheme is Basic.
    pub fn add_authorization(&self, header: &HeaderValue) {
        let text = String::from_utf8_lossy(header.as_bytes());
        let (scheme, credential) = text.split_once(' ').unwrap_or(("", &text));
        self.add("authorization", credential);
        if scheme.eq_ignore_ascii_case("basic")
            && let Ok(pair) = BASE64_STANDARD.decode(credential)
            && let Some((_id, password)) = String::from_utf8_lossy(&pair).split_once(':')
        {
            self.add("password", password);
        }
    }

    /// Replaces secrets by `[redacted]`: known values, and strings that do not look like words:
    ///
    /// - known values, also escaped as in JSON and in Rust's `Debug`, form-urlencoded, with `%XX` in both cases, as the
    ///   numbers of their bytes, and in base64, alone or behind an id;
    /// - passwords of URLs, and the credential after `Bearer` or `Basic`, if it has 16 characters or more, and letters
    ///   and digits;
    /// - values of `client_secret`, `secret`, `token`, `password`, `sig`, `key` and names that end so, in queries, forms,
    ///   JSON, `name: value` and `name = value`, if they have eight characters or more and are no word;
    /// - runs of 24 or more letters, digits, `+`, `/`, `_` and `-` in which letters and digits alternate as in no name,
    ///   so JWTs as well. Paths, class names, UUIDs, names of pods, and lower-case names with dots stay.
    ///
    /// Trace ids, commits and digests of hexadecimal digits alone look like keys, and are replaced.
    ///
    /// Work grows with the length of the text, whatever it repeats.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let decoded = Decoded::new(text);
        let mut found = shapes::find(&decoded);
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, value) in values.iter() {
            find_decoded(&decoded.text, value, &mut found);
        }
        let mut found: Vec<_> = found.into_iter().map(|it| decoded.source(it)).collect();
        for (_, value) in values.iter() {
            find(text, value, &mut found);
            let bytes: Vec<_> = value.bytes().map(|byte| byte.to_string()).collect();
            find(text, &bytes.join(", "), &mut found);
        }
        drop(values);
        found.retain(|range| !range.is_empty());
        found.sort_unstable_by_key(|range| range.start);
        let (mut shown, mut end) = (String::with_capacity(text.len()), 0);
        for range in found {
            // Parts that touch are one.
            if range.start > end || shown.is_empty() {
                shown.push_str(part(text, end..range.start));
                shown.push_str(REDACTED);
            }
            end = end.max(range.end);
        }
        shown + tail(text, end)
    }

    /// Redacts a text for a log or a terminal: one line of at most 200 characters, with control characters and those
    /// that reorder or hide text escaped.
    #[must_use]
    pub fn line(&self, text: &str) -> String {
        text::line(&self.redact(text))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

/// Finds a known value in a decoded text, which may be cut inside of it, and in base64.
fn find_decoded(text: &str, value: &str, found: &mut Vec<Range<usize>>) {
    // In forms, a space is a plus. What looks like an escape in the value may have been decoded as well, and a backslash
    // at its end with the quote behind it.
    let form = text.replace('+', " ");
    let decoded = Decoded::new(value).text;
    for known in [value, &decoded]
        .map(|known| [known, known.trim_end_matches('\\')])
        .concat()
    {
        let known = known.replace('+', " ");
        find(&form, &known, found);
        let ends = (SHORTEST_PART..known.len()).rev();
        let mut cuts = ends.filter_map(|end| form.strip_suffix(known.get(..end)?));
        found.extend(cuts.next().map(|before| before.len()..form.len()));
    }
    if value.chars().count() < SHORTEST_PART {
        return;
    }
    // Base64 has an id before the value, and what follows it, in the same groups of letters.
    let inside = inside_base64(value);
    let standard = text.replace('-', "+").replace('_', "/");
    let is_other = |c: char| !(c.is_ascii_alphanumeric() || "+/=".contains(c));
    let mut start = 0;
    for run in standard.split_inclusive(is_other) {
        if inside.iter().any(|letters| run.contains(letters)) {
            found.push(start..start + run.trim_end_matches(is_other).len());
        }
        start += run.len();
    }
}

/// Finds a value in a text; a short one only as a whole word.
fn find(text: &str, value: &str, found: &mut Vec<Range<usize>>) {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    let is_short = value.chars().count() < SHORTEST_PART;
    for (start, _) in text.match_indices(value) {
        let end = start + value.len();
        let is_part = part(text, 0..start).ends_with(joins) || tail(text, end).starts_with(joins);
        if !(is_short && is_part) {
            found.push(start..end);
        }
    }
}

/// Returns the letters that stand for a value in base64 behind 0, 1 and 2 other bytes, without those that depend on
/// others.
fn inside_base64(value: &str) -> [String; 3] {
    [0, 2, 3].map(|start| {
        let padded = "\0".repeat(start * 3 / 4) + value;
        let letters = BASE64_STANDARD_NO_PAD.encode(&padded);
        part(&letters, start..padded.len() * 4 / 3).to_owned()
    })
}

/// Current value, the one before, and two more of an outage.
const KEPT: usize = 4;

/// Length below which a value, or a part of one at the end of a text that was cut, may be a word.
const SHORTEST_PART: usize = 8;

/// Stands in place of a secret.
const REDACTED: &str = "[redacted]";
