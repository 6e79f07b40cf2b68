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
    syntax,
    text::{self, Decoded, part, tail},
};

#[cfg(test)]
mod tests;

/// Holds the secrets of your program, and removes them from texts that you show or log.
///
/// If you use a token layer, take its `Secrets` for your own logs as well (`TokenSource::secrets` in tower-oidc-cc): it
/// knows the client secret, the tokens and the assertions. Add the password of a proxy yourself. An empty `Secrets`
/// still finds what the syntax of a text shows to be secret: see [`redact`](Self::redact).
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
pub struct Secrets(Arc<Mutex<Arc<Vec<Known>>>>);

/// Value with its name, and the texts to search for. Their memory is overwritten when the last reader drops them.
#[derive(Clone)]
struct Known {
    name: &'static str,
    value: Arc<Zeroizing<String>>,
    /// As it is, and decoded.
    plain: Arc<[Zeroizing<String>]>,
    /// Inside of base64.
    base64: Arc<[Zeroizing<String>]>,
}

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
        let known = Known::new(name, value);
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let values = Arc::make_mut(&mut values);
        // A value that is added again becomes the newest one. The newest are in front.
        values.retain(|known| **known.value != value);
        values.insert(0, known);
        let mut of_name = 0;
        values.retain(|known| {
            of_name += usize::from(known.name == name);
            known.name != name || of_name <= KEPT
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

    /// Replaces with `[redacted]` the values that you added, and what the syntax shows to be secret:
    ///
    /// - values that you added: also escaped as in JSON or in Rust's `Debug`, form-urlencoded, percent-encoded in either
    ///   case, and in base64, alone or after a client id; at the end of a text that was cut, from eight characters on;
    /// - password and query of a URL;
    /// - credentials after `Bearer` or `Basic` of 16 characters or more that have both letters and digits, and JWTs.
    ///
    /// Redact before you cut a text: the rest of a value may be too short to be found.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let values = Arc::clone(&values);
        let mut found = find(text, &values);
        if text.contains(['%', '\\', '&']) {
            let decoded = Decoded::new(text);
            let inside = find(&decoded.text, &values).into_iter();
            found.extend(inside.map(|range| decoded.source(range)));
        }
        found.retain(|range| !range.is_empty());
        if found.is_empty() {
            return text.to_owned();
        }
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

// === impl Known ===

impl Known {
    fn new(name: &'static str, value: &str) -> Self {
        let decoded = Decoded::new(value).text;
        // A backslash at the end of a value is joined with the quote behind it.
        let plain = [value, &decoded].map(|it| [it, it.trim_end_matches('\\')]);
        let mut plain: Vec<_> = plain.concat().into_iter().map(normal).collect();
        plain.sort_unstable();
        plain.dedup();
        let is_short = value.chars().count() < SHORTEST_PART;
        let base64 = inside_base64(value).map(|letters| normal(&letters));
        let base64 = base64.into_iter().filter(|_| !is_short);
        Self {
            name,
            value: Arc::new(value.to_owned().into()),
            plain: plain.into_iter().map(Zeroizing::new).collect(),
            base64: base64.map(Zeroizing::new).collect(),
        }
    }
}

/// Finds in one text the known values, and what its syntax shows.
fn find(text: &str, values: &[Known]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    syntax::find(text, &mut found);
    let normal = normal(text);
    for known in values {
        for form in &*known.plain {
            occurrences(&normal, form, |range| {
                let joins = |c: char| c.is_alphanumeric() || c == '_';
                let is_part = part(text, 0..range.start).ends_with(joins)
                    || tail(text, range.end).starts_with(joins);
                if !(is_part && form.chars().count() < SHORTEST_PART) {
                    found.push(range);
                }
            });
        }
        for letters in &*known.base64 {
            let mut last = 0;
            occurrences(&normal, letters, |range| {
                if range.start < last {
                    return;
                }
                // In HTTP Basic an id precedes the value, and a group of four letters may cover the end of one and the beginning of
                // the other.
                let is_other = |c: char| !(c.is_ascii_alphanumeric() || "+/-_=".contains(c));
                let before = part(text, 0..range.start);
                let start = before.trim_end_matches(|c| !is_other(c)).len();
                let rest = tail(text, range.end);
                last = range.end + rest.find(is_other).unwrap_or(rest.len());
                found.push(start..last);
            });
        }
    }
    found
}

/// Finds a form in a text: whole, or from [`SHORTEST_PART`] characters on where the text ends.
fn occurrences(text: &str, form: &str, mut found: impl FnMut(Range<usize>)) {
    let begins = form.char_indices().nth(SHORTEST_PART);
    let begins = begins.map_or(form, |(end, _)| part(form, 0..end));
    let mut at = 0;
    while let Some(next) = tail(text, at).find(begins) {
        let start = at + next;
        let rest = tail(text, start);
        at = start + begins.chars().next().map_or(1, char::len_utf8);
        if rest.starts_with(form) {
            found(start..start + form.len());
            at = start + form.len();
        } else if form.starts_with(rest) {
            found(start..text.len());
        }
    }
}

/// Writes alike what encodings write differently: a blank is a plus in forms, and base64 has two alphabets. Each character keeps its
/// place.
fn normal(text: &str) -> String {
    let alike = |c| match c {
        '+' | '-' => ' ',
        '_' => '/',
        c => c,
    };
    text.chars().map(alike).collect()
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
