//! The text forms of settings, shared by the command line and the admin listener.

use std::{fmt, time::Duration};

use crate::delay::parse_duration;

/// A text that is not a setting, with what was expected.
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

/// Reads a duration.
pub(crate) fn duration(text: &str) -> Result<Duration, ParseError> {
    let wanted = "a whole number and s, ms, us or ns, such as 20ms";
    parse_duration(text).map_err(|_| ParseError::new("duration", text, wanted))
}
