//! The handle that knows secrets, and takes them out of texts.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use http::HeaderValue;

use crate::{
    known::{self, Value},
    shapes,
    text::{self, REDACTED},
};

#[cfg(test)]
mod tests;

/// Knows the secrets of a program, and takes them out of texts before these are shown.
///
/// The builders of the layers fill it: with the client secret, the tokens, the assertions and the passwords of proxies.
/// Use the handle of a layer for your own logs, too. Without any value it still finds what only a secret looks like.
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
pub struct Secrets(Arc<Mutex<Vec<(&'static str, Value)>>>);

// === impl Secrets ===

impl Secrets {
    /// Adds a value, which takes the place of the oldest one if there are four of its name.
    ///
    /// A value under eight characters is only replaced as a whole word, because it may be a part of one.
    pub fn add(&self, name: &'static str, value: &str) {
        let value = value.trim();
        if value.is_empty() {
            return;
        }
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A value that is added again becomes the newest one.
        values.retain(|(_, known)| known.as_str() != value);
        let of_name = values.iter().filter(|(of, _)| *of == name).count();
        if of_name >= KEPT
            && let Some(oldest) = values.iter().position(|(of, _)| *of == name)
        {
            values.remove(oldest);
        }
        values.push((name, Value::new(value)));
    }

    /// Adds the credential of an `Authorization` header, and the password inside if its scheme is Basic.
    pub fn add_authorization(&self, header: &HeaderValue) {
        let text = String::from_utf8_lossy(header.as_bytes());
        let (scheme, credential) = text.split_once(' ').unwrap_or(("", &text));
        self.add("authorization", credential);
        if scheme.eq_ignore_ascii_case("basic")
            && let Some(pair) = known::decoded(credential)
            && let Some((_id, password)) = pair.split_once(':')
        {
            let plain: String = text::units(password).iter().map(|it| it.c).collect();
            self.add("password", &plain);
            self.add("encoded password", password);
        }
    }

    /// Replaces secrets by `[redacted]`, first the known values, then what is no word of a language:
    ///
    /// - known values, also escaped as in JSON and in Rust's `Debug`, form-urlencoded, with `%XX` in both cases, as the
    ///   numbers of their bytes, and in base64, alone or behind an id;
    /// - passwords of URLs, JWTs, and the credential after `Bearer` or `Basic`, if it has 16 characters or more, and
    ///   letters and digits;
    /// - values of `client_secret`, `secret`, `token`, `password`, `sig`, `key` and names that end so, in queries, forms,
    ///   JSON, `name: value` and `name = value`, if they have eight characters or more and are no word;
    /// - runs of 24 or more letters, digits, `+`, `/`, `_` and `-` that mix letters with digits, unless they are made of
    ///   words, such as a path, or are a UUID or a part of a name with dots.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let mut hidden = vec![false; text.len()];
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, value) in values.iter() {
            value.mark(text, &mut hidden);
        }
        drop(values);
        shapes::mark(text, &mut hidden);
        let mut kept = String::with_capacity(text.len());
        let mut was_hidden = false;
        for (at, c) in text.char_indices() {
            let is_hidden = hidden.get(at).is_some_and(|hidden| *hidden);
            if !is_hidden {
                kept.push(c);
            } else if !was_hidden {
                kept.push_str(REDACTED);
            }
            was_hidden = is_hidden;
        }
        kept
    }

    /// Redacts a text for a log or a terminal: one line of at most 200 characters, with control characters and those
    /// that reorder or hide text escaped.
    #[must_use]
    pub fn line(&self, text: &str) -> String {
        // What follows is not shown, and a value that is cut here is still found.
        let end = (0..=LONGEST.min(text.len()))
            .rev()
            .find(|at| text.is_char_boundary(*at));
        text::line(&self.redact(text.get(..end.unwrap_or_default()).unwrap_or_default()))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

/// The current value, the one before, and two more of an outage.
const KEPT: usize = 4;

/// The bytes of a text that [`Secrets::line`] reads.
const LONGEST: usize = 4 * 1024;
