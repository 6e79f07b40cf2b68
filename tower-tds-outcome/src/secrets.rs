//! Handle that holds secrets and removes them from texts.

use std::{
    collections::BTreeMap,
    fmt, iter,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, Engine as _};
use zeroize::Zeroizing;

use crate::text::{self, Decoded, part, tail};

#[cfg(test)]
mod tests;

/// Holds the secrets of your program, and removes them from texts that you show or log.
///
/// If you use a token layer, take its `Secrets` for your own logs as well (`TokenSource::secrets` in tower-oidc-cc): it
/// knows the client secret, the tokens and the assertions. Add the password of a proxy yourself. An empty `Secrets`
/// still finds what the syntax of a text shows to be secret: see [`redact`](Self::redact).
///
/// The last four values of each name are kept, so that a late text about a token that was just replaced is also clean, and
/// those that are [guarded](SecretGuard).
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

/// Keeps a value known until it is dropped, however many others of its name are added.
#[derive(Clone)]
pub struct SecretGuard(
    #[expect(dead_code, reason = "its count shows that the value is in use")]
    Arc<Zeroizing<String>>,
);

/// Value with its name, and the texts to search for. Their memory is overwritten when they are dropped.
struct Known {
    name: &'static str,
    value: Arc<Zeroizing<String>>,
    variants: Vec<Variant>,
}

/// A value as a text may have it: as it is, decoded, or inside of base64.
struct Variant {
    text: Zeroizing<String>,
    is_base64: bool,
}

// === impl Secrets ===

impl Secrets {
    /// Adds a value. If there are four of this name already, it replaces the oldest one that has no [guard](SecretGuard).
    ///
    /// A value of fewer than eight characters is replaced only as a whole word, and not in base64, because it may also
    /// be a part of ordinary words.
    ///
    /// By the name `authorization` you add the value of that header: the credential after its scheme is added, and the
    /// password that HTTP Basic encodes as well.
    pub fn add(&self, name: &'static str, value: impl AsRef<[u8]>) -> SecretGuard {
        let text = String::from_utf8_lossy(value.as_ref());
        let text = text.trim_start();
        let header = text.split_once(char::is_whitespace);
        // Any other value may also begin with a word such as "basic".
        let header = header.filter(|_| name == "authorization");
        let (scheme, credential) = header.unwrap_or(("", text));
        let value = credential.trim();
        if scheme.eq_ignore_ascii_case("basic")
            && let Ok(pair) = BASE64_STANDARD.decode(value)
            && let Some((_id, password)) = String::from_utf8_lossy(&pair).split_once(':')
        {
            self.add("password", password);
        }
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A value that is added again becomes the newest one. The newest are in front.
        let known = values.iter().position(|known| **known.value == value);
        let known = known.map_or_else(|| Known::new(name, value), |at| values.remove(at));
        let guard = SecretGuard(Arc::clone(&known.value));
        values.insert(0, known);
        let mut of_name = 0;
        values.retain(|known| {
            let is_guarded = Arc::strong_count(&known.value) > 1;
            of_name += usize::from(known.name == name);
            known.name != name || of_name <= KEPT || is_guarded
        });
        guard
    }

    /// Replaces with `[redacted]` the values that you added, and what the syntax shows to be secret:
    ///
    /// - values that you added: also escaped as in JSON or in Rust's `Debug`, form-urlencoded, percent-encoded in either
    ///   case, and in base64, alone or after a client id; at the end of a text that was cut, from eight characters on;
    /// - password and query of a URL, a key in place of its user, and the query behind a path;
    /// - credentials after `Bearer` or `Basic` of 16 characters or more that have a digit, and JWTs.
    ///
    /// Redact before you cut a text: the rest of a value may be too short to be found.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Tokens of one issuer begin alike, so that one search finds all of them.
        let mut known = BTreeMap::<_, Vec<_>>::new();
        for variant in values.iter().flat_map(|known| &known.variants) {
            known.entry(variant.begin()).or_default().push(variant);
        }
        let layers = iter::successors(Some(Decoded::new(text)), Decoded::inner).take(DEEPEST);
        let mut found = Vec::new();
        for layer in layers {
            let inside = find(&layer.text, &known).into_iter();
            found.extend(inside.map(|range| layer.source(range)));
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

impl fmt::Debug for SecretGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretGuard")
    }
}

// === impl Known ===

impl Known {
    fn new(name: &'static str, value: &str) -> Self {
        let decoded = Decoded::new(value).inner().map(|it| it.text);
        let plain = iter::once(Variant::new(value, false));
        let plain = plain.chain(decoded.map(|it| Variant::new(&it, false)));
        let is_short = value.chars().count() < SHORTEST_PART;
        let base64 = inside_base64(value).map(|letters| Variant::new(&letters, true));
        let base64 = base64.into_iter().filter(|_| !is_short);
        let mut variants: Vec<_> = plain.chain(base64).collect();
        variants.retain(|variant| !variant.text.is_empty());
        Self {
            name,
            value: Arc::new(value.to_owned().into()),
            variants,
        }
    }
}

/// Finds in one text the known values, by their beginnings, and what its syntax shows. The text may have been cut inside of
/// a value.
fn find(text: &str, known: &BTreeMap<&str, Vec<&Variant>>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    text::find(text, &mut found);
    let normal = normal(text);
    let end = text::whole(&normal).len();
    for (begin, variants) in known {
        let mut from = 0;
        while let Some(at) = tail(&normal, from).find(begin) {
            let start = from + at;
            let rest = tail(&normal, start);
            for variant in variants {
                let pairs = iter::zip(rest.bytes(), variant.text.bytes());
                let until = start + pairs.take_while(|(a, b)| a == b).count();
                if until == start + variant.text.len() {
                    found.extend(variant.place(text, start..until));
                } else if until >= end {
                    found.extend(variant.place(text, start..text.len()));
                }
            }
            from = start + rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    found
}

// === impl Variant ===

impl Variant {
    fn new(text: &str, is_base64: bool) -> Self {
        Self {
            text: normal(text).into(),
            is_base64,
        }
    }

    /// Returns as much of it as is replaced at the end of a text that was cut.
    fn begin(&self) -> &str {
        let end = self.text.char_indices().nth(SHORTEST_PART);
        part(&self.text, 0..end.map_or(self.text.len(), |(at, _)| at))
    }

    /// Returns what to replace where this variant was found, if that is the value and not a part of a word.
    fn place(&self, text: &str, found: Range<usize>) -> Option<Range<usize>> {
        let (before, after) = (part(text, 0..found.start), tail(text, found.end));
        if self.is_base64 {
            // In HTTP Basic an id precedes the value, and a group of four letters may cover the end of one and the beginning of
            // the other.
            let is_letter = |c: char| c.is_ascii_alphanumeric() || "+/-_=".contains(c);
            let start = before.trim_end_matches(is_letter).len();
            return Some(start..text.len() - after.trim_start_matches(is_letter).len());
        }
        let joins = |c: char| c.is_alphanumeric() || c == '_';
        let is_part = before.ends_with(joins) || after.starts_with(joins);
        let is_short = self.text.chars().count() < SHORTEST_PART;
        (!(is_short && is_part)).then_some(found)
    }
}

/// Writes alike what encodings write differently: a blank is a plus in forms, and base64 has two alphabets. Each keeps its
/// place.
fn normal(text: &str) -> String {
    let alike = |byte: u8| match byte {
        b'+' | b'-' => b' ',
        b'_' => b'/',
        byte => byte,
    };
    let bytes = text.bytes().map(alike).collect();
    String::from_utf8(bytes).unwrap_or_default()
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

/// The text, and how often it may have been escaped: JSON in a form, in the `Debug` of an error, in another one.
const DEEPEST: usize = 5;

/// Stands in place of a secret.
const REDACTED: &str = "[redacted]";
