//! How long a token lives, by what was said about it. No clock.

use std::time::{Duration, SystemTime};

use http::HeaderValue;

#[cfg(feature = "claims")]
use crate::claims;

#[cfg(test)]
mod tests;

/// What counts besides `expires_in`.
#[derive(Clone, Copy, Debug)]
pub(in crate::tokens) struct Terms {
    /// For replies without `expires_in`.
    pub(in crate::tokens) unsaid: Duration,
    /// Whether a token's own `exp` may shorten its life.
    pub(in crate::tokens) exp: bool,
}

// === impl Terms ===

impl Terms {
    /// The life of a token that was asked for at `sent`; zero if it is over.
    pub(super) fn life(
        &self,
        said: Option<Duration>,
        header: &HeaderValue,
        sent: SystemTime,
    ) -> Duration {
        let life = said.unwrap_or(self.unsaid);
        match self.exp.then(|| expires_at(header)).flatten() {
            Some(exp) => exp.duration_since(sent).unwrap_or_default().min(life),
            None => life,
        }
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            unsaid: UNSAID,
            exp: false,
        }
    }
}

#[cfg(feature = "claims")]
fn expires_at(header: &HeaderValue) -> Option<SystemTime> {
    claims::expires_at(header)
}

#[cfg(not(feature = "claims"))]
fn expires_at(_: &HeaderValue) -> Option<SystemTime> {
    None
}

/// RFC 6749 only recommends `expires_in`. Five minutes are the default of Keycloak's realm setting
/// "Access Token Lifespan": too short costs a request, too long a 401.
const UNSAID: Duration = Duration::from_secs(5 * 60);
