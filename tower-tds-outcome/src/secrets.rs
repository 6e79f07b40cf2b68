//! Handle that holds secrets and removes them from texts.

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

/// Holds the secrets of your program, and removes them from texts that you show or log.
///
/// If you use a token layer, take its `Secrets` for your own logs as well (`TokenSource::secrets` in tower-oidc-cc): it
/// knows the client secret, the tokens and the assertions. Add the password of a proxy yourself. An empty `Secrets`
/// still finds strings whose shape shows that they are secrets.
///
/// The last four values of each name are kept, so that a late text about a token that was just replaced is also clean.
/// Don't add your client id: it is public, and helps to find a fault.
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

/// Name and value. The value's memory is overwritten when it is dropped.
type Known = (&'static str, Zeroizing<String>);

// === impl Secrets ===

impl Secrets {
    /// Adds a value. If there are four of this name already, it replaces the oldest one.
    ///
    /// A value of fewer than eight characters is replaced only as a whole word, and not in base64, because it may also
    /// be a part of ordinary words.
    pub fn add(&self, name: &'static str, value: &str) {
        let value = value.trim();
        if value.is_empty() {
            return;
        }
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A value that is added again becomes the newest one. The newest are in front.
        values.retain(|(_, known)| **known != value);
        values.insert(0, (name, value.to_owned().into()));
        let mut of_name = 0;
        values.retain(|(of, _)| {
            of_name += usize::from(*of == name);
            *of != name || of_name <= KEPT
        });
    }

    /// Adds the credential of an `Authorization` header, and if its scheme is Basic, the password inside as well.
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

    /// Replaces with `[redacted]` known values, passwords in URLs, and strings that do not look like words:
    ///
    /// - known values: also escaped as in JSON or in Rust's `Debug`, form-urlencoded, percent-encoded in either case,
    ///   as a list of byte numbers, and in base64, alone or after a client id;
    /// - passwords in URLs, and credentials after `Bearer` or `Basic` of 16 characters or more that have both letters
    ///   and digits;
    /// - values of `client_secret`, `secret`, `token`, `password`, `sig`, `key` and of names that end in one of them,
    ///   in queries, forms, JSON, `name: value` and `name = value`, if they have eight characters or more and are not
    ///   ordinary words;
    /// - runs of 24 or more letters, digits, `+`, `/`, `_` and `-` in which letters and digits alternate more often
    ///   than in names, as in JWTs. Paths, class names, UUIDs, names of pods, and lower-case names with dots stay.
    ///
    /// Trace ids, commit hashes and digests look like keys, so they are replaced as well.
    ///
    /// The work is linear in the length of the text, even if the text is made to slow it down.
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
            // Parts that touch or overlap become one.
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

/// Finds a known value in a decoded text and in base64. The text may have been cut inside of the value.
fn find_decoded(text: &str, value: &str, found: &mut Vec<Range<usize>>) {
    // Forms encode a space as a plus. If the value itself contains what looks like an escape, decoding has changed that
    // too, and a backslash at its end was joined with the quote that follows.
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
    // In HTTP Basic an id precedes the value, and a group of four letters may cover the end of one and the beginning of
    // the other.
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

/// Finds a value in a text. A short value must be a whole word.
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

/// Returns the base64 letters of a value after 0, 1 and 2 other bytes, without the letters at its edges, which also
/// depend on its neighbours.
fn inside_base64(value: &str) -> [String; 3] {
    [0, 2, 3].map(|start| {
        let padded = "\0".repeat(start * 3 / 4) + value;
        let letters = BASE64_STANDARD_NO_PAD.encode(&padded);
        part(&letters, start..padded.len() * 4 / 3).to_owned()
    })
}

/// The current value, the one before it, and two more from an outage.
const KEPT: usize = 4;

/// Shortest value that is replaced inside of words too, and shortest beginning of a value that is replaced at the end
/// of a text that was cut. Anything shorter may be a word.
const SHORTEST_PART: usize = 8;

/// Stands in place of a secret.
const REDACTED: &str = "[redacted]";
