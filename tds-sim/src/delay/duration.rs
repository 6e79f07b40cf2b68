//! Durations as text.

use std::{error, fmt, time::Duration};

/// A text that is no duration.
///
/// Its message says how one is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseDurationError {
    text: String,
}

/// A duration as the program writes it: the exact value, in the largest unit that has it whole.
pub(super) struct Written(pub(super) Duration);

/// Reads a duration from a whole number and its unit, `s`, `ms`, `us` or `ns`.
///
/// # Errors
/// [`ParseDurationError`] for anything else, such as a number without a unit, a fraction, or
/// more than a `u64` of the unit: write it as `1500ms`.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tds_sim::parse_duration;
///
/// assert_eq!(parse_duration("20ms"), Ok(Duration::from_millis(20)));
/// assert!(parse_duration("20").is_err());
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, ParseDurationError> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    text.strip_suffix(unit)
        .and_then(|number| number.parse().ok())
        .and_then(|number| match unit {
            "s" => Some(Duration::from_secs(number)),
            "ms" => Some(Duration::from_millis(number)),
            "us" => Some(Duration::from_micros(number)),
            "ns" => Some(Duration::from_nanos(number)),
            _ => None,
        })
        .ok_or_else(|| ParseDurationError {
            text: text.to_owned(),
        })
}

// === impl ParseDurationError ===

impl fmt::Display for ParseDurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no duration `{}`: write a whole number and s, ms, us or ns, such as 20ms",
            self.text
        )
    }
}

impl error::Error for ParseDurationError {}

// === impl Written ===

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_nanos() {
            n if n.is_multiple_of(SECOND) => write!(f, "{}s", n / SECOND),
            n if n.is_multiple_of(MILLISECOND) => write!(f, "{}ms", n / MILLISECOND),
            n if n.is_multiple_of(MICROSECOND) => write!(f, "{}us", n / MICROSECOND),
            n => write!(f, "{n}ns"),
        }
    }
}

// In nanoseconds.
const SECOND: u128 = 1_000_000_000;
const MILLISECOND: u128 = 1_000_000;
const MICROSECOND: u128 = 1_000;
