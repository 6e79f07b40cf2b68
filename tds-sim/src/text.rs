//! Parsers of settings, for the command line and the admin listener.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

/// Error of a text that cannot be parsed, with the expected form.
///
/// # Examples
/// ```
/// let error = "20".parse::<tds_sim::Quota>().unwrap_err();
/// assert_eq!(error.to_string(), "bad quota `20`; use CALLS/WINDOW, such as 20/60s");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    what: &'static str,
    text: String,
    wanted: Cow<'static, str>,
}

/// Path in which `*` stands for any number of characters, also none, and also slashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(Box<str>);

// === impl Pattern ===

impl Pattern {
    pub(crate) fn matches(&self, path: &str) -> bool {
        let path = &*normal(path);
        let Some((start, rest)) = self.0.split_once('*') else {
            return *self.0 == *path;
        };
        let Some(mut path) = path.strip_prefix(start) else {
            return false;
        };
        let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
        for part in middle.split('*') {
            let Some((_, after)) = path.split_once(part) else {
                return false;
            };
            path = after;
        }
        path.ends_with(end)
    }
}

impl FromStr for Pattern {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.starts_with('/') && !text.contains(['?', '#']) {
            Ok(Self(normal(text).into()))
        } else {
            Err(ParseError::new("path", text, PATH))
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns a path in its normal form: encoded characters that need no encoding are decoded, and the
/// digits of the others are in capitals (RFC 3986, section 6.2.2).
fn normal(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return path.into();
    }
    let mut parts = path.split('%');
    let mut normal = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..2)
            .filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        let (code, rest) = part.split_at(code.map_or(0, str::len));
        match byte.map(char::from) {
            Some(plain) if plain.is_ascii_alphanumeric() || "-._~".contains(plain) => {
                normal.push(plain)
            }
            _ => normal = normal + "%" + &code.to_ascii_uppercase(),
        }
        normal += rest;
    }
    normal.into()
}

/// Finds the value of a word in the list of all words.
pub(crate) fn word<T: Copy>(
    what: &'static str,
    text: &str,
    words: &[(&str, T)],
) -> Result<T, ParseError> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let all: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        ParseError::new(what, text, all.join(", "))
    })
}

// === impl ParseError ===

impl ParseError {
    pub(crate) fn new(
        what: &'static str,
        text: &str,
        wanted: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            what,
            text: text.to_owned(),
            wanted: wanted.into(),
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad {} `{}`; use {}", self.what, self.text, self.wanted)
    }
}

impl std::error::Error for ParseError {}

/// Reads a duration from a whole number and its unit, `s`, `ms`, `us` or `ns`.
///
/// # Errors
/// Returns a [`ParseError`] for anything else, such as a number without a unit, a fraction, or more
/// than a `u64` of the unit. Write 1.5 s as `1500ms`.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tds_sim::parse_duration;
///
/// assert_eq!(parse_duration("20ms"), Ok(Duration::from_millis(20)));
/// assert!(parse_duration("20").is_err());
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = text
        .strip_suffix(unit)
        .and_then(|number| number.parse().ok());
    match (number, unit) {
        (Some(number), "s") => Ok(Duration::from_secs(number)),
        (Some(number), "ms") => Ok(Duration::from_millis(number)),
        (Some(number), "us") => Ok(Duration::from_micros(number)),
        (Some(number), "ns") => Ok(Duration::from_nanos(number)),
        _ => Err(ParseError::new("duration", text, DURATION)),
    }
}

const PATH: &str = "a path without a query, such as /v1/live/bus or /v1/live/*";

const DURATION: &str = "a whole number and s, ms, us or ns, such as 20ms";
