//! Parsers of settings, for the command line and the admin listener.

use std::{fmt, time::Duration};

/// The error of a text that cannot be parsed. It contains the expected form.
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
    wanted: &'static str,
}

// === impl ParseError ===

impl ParseError {
    pub(crate) fn new(what: &'static str, text: &str, wanted: &'static str) -> Self {
        Self {
            what,
            text: text.to_owned(),
            wanted,
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
/// [`ParseError`] for anything else, such as a number without a unit, a fraction, or more than a
/// `u64` of the unit. Write 1.5 s as `1500ms`.
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

const DURATION: &str = "a whole number and s, ms, us or ns, such as 20ms";
