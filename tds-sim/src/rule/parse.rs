//! Rules as text.

use std::{error, fmt, str::FromStr};

use super::Rule;

/// A text that names no counting rule.
///
/// Its message lists the names there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseRuleError {
    text: String,
}

// === impl Rule ===

/// # Errors
/// [`ParseRuleError`] for any other text than those that [`Rule`] lists: write one of them.
impl FromStr for Rule {
    type Err = ParseRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || ParseRuleError {
            text: text.to_owned(),
        };
        match text {
            "fixed" => Ok(Self::FixedWindow),
            "log" => Ok(Self::SlidingLog),
            "log-all" => Ok(Self::SlidingLogAll),
            "counter" => Ok(Self::SlidingCounter),
            "in-flight" => Ok(Self::InFlight),
            _ => text
                .strip_prefix("leaky:")
                .and_then(|burst| burst.parse().ok())
                .map(|burst| Self::LeakyBucket { burst })
                .ok_or_else(unknown),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FixedWindow => f.write_str("fixed"),
            Self::SlidingLog => f.write_str("log"),
            Self::SlidingLogAll => f.write_str("log-all"),
            Self::SlidingCounter => f.write_str("counter"),
            Self::LeakyBucket { burst } => write!(f, "leaky:{burst}"),
            Self::InFlight => f.write_str("in-flight"),
        }
    }
}

// === impl ParseRuleError ===

impl fmt::Display for ParseRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no counting rule `{}`: write fixed, log, log-all, counter, leaky:BURST \
             (such as leaky:10) or in-flight",
            self.text
        )
    }
}

impl error::Error for ParseRuleError {}
