//! Delays as text.

use std::{error, fmt, str::FromStr, time::Duration};

use super::{
    Delay,
    duration::{ParseDurationError, Written, parse_duration},
};

/// A text that is no delay.
///
/// Its message says what is wrong with it and lists the forms there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseDelayError {
    text: String,
    flaw: Flaw,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Flaw {
    Form,
    Duration(ParseDurationError),
    Order(&'static str),
    Alpha,
}

// === impl Delay ===

/// # Errors
/// [`ParseDelayError`] for any other form than those that [`Delay`] lists, and for numbers that
/// make no sense in it: write what the message asks for.
impl FromStr for Delay {
    type Err = ParseDelayError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|flaw| ParseDelayError {
            text: text.to_owned(),
            flaw,
        })
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::None => f.write_str("none"),
            Self::Constant(delay) => write!(f, "{}", Written(delay)),
            Self::Uniform { min, max } => write!(f, "uniform:{}:{}", Written(min), Written(max)),
            Self::LogNormal { median, p99 } => {
                write!(f, "lognormal:{}:{}", Written(median), Written(p99))
            }
            Self::Pareto { min, alpha } => write!(f, "pareto:{}:{alpha}", Written(min)),
            Self::Stall { every, length } => {
                write!(f, "stall:{}:{}", Written(every), Written(length))
            }
        }
    }
}

// === impl ParseDelayError ===

impl fmt::Display for ParseDelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no delay `{}`: ", self.text)?;
        match &self.flaw {
            Flaw::Form => f.write_str("the form is unknown")?,
            Flaw::Duration(error) => error.fmt(f)?,
            Flaw::Order(order) => f.write_str(order)?,
            Flaw::Alpha => f.write_str("ALPHA is a number above 0, such as 1.5")?,
        }
        f.write_str(
            "; delays are none, 20ms, uniform:MIN:MAX, lognormal:MEDIAN:P99, pareto:MIN:ALPHA \
             and stall:EVERY:LENGTH",
        )
    }
}

impl error::Error for ParseDelayError {}

// === impl Flaw ===

impl From<ParseDurationError> for Flaw {
    fn from(error: ParseDurationError) -> Self {
        Self::Duration(error)
    }
}

fn parse(text: &str) -> Result<Delay, Flaw> {
    let mut parts = text.split(':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some("none"), None, ..) => Ok(Delay::None),
        // A digit is enough to see what was meant.
        (Some(delay), None, ..) if delay.starts_with(|c: char| c.is_ascii_digit()) => {
            Ok(Delay::Constant(parse_duration(delay)?))
        }
        (Some("uniform"), Some(min), Some(max), None) => {
            let (min, max) = ordered(min, max, "MIN is above MAX")?;
            Ok(Delay::Uniform { min, max })
        }
        (Some("lognormal"), Some(median), Some(p99), None) => {
            let (median, p99) = ordered(median, p99, "MEDIAN is above P99")?;
            if median.is_zero() {
                return Err(Flaw::Order("MEDIAN is zero"));
            }
            Ok(Delay::LogNormal { median, p99 })
        }
        (Some("pareto"), Some(min), Some(alpha), None) => {
            let min = parse_duration(min)?;
            let alpha: f64 = alpha.parse().map_err(|_| Flaw::Alpha)?;
            if !(alpha.is_finite() && alpha > 0.0) {
                return Err(Flaw::Alpha);
            }
            Ok(Delay::Pareto { min, alpha })
        }
        (Some("stall"), Some(every), Some(length), None) => {
            let (length, every) = ordered(length, every, "LENGTH is above EVERY")?;
            if every.is_zero() {
                return Err(Flaw::Order("EVERY is zero"));
            }
            Ok(Delay::Stall { every, length })
        }
        _ => Err(Flaw::Form),
    }
}

/// Two durations, of which the first may not exceed the second.
fn ordered(less: &str, more: &str, flaw: &'static str) -> Result<(Duration, Duration), Flaw> {
    let (less, more) = (parse_duration(less)?, parse_duration(more)?);
    if less > more {
        return Err(Flaw::Order(flaw));
    }
    Ok((less, more))
}
