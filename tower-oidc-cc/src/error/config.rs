//! Refusals of a configuration, before anything is sent.

use std::fmt;

/// Says why credentials, an endpoint or an origin were refused, and what to put instead.
///
/// It never repeats the value it refuses, which may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(&'static str);

// === impl ConfigError ===

impl ConfigError {
    pub(crate) const fn new(reason: &'static str) -> Self {
        Self(reason)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ConfigError {}
