//! Condition of a source, for people and programs.

use std::{fmt, time::Duration};

use crate::error::TokenError;

/// Condition of the token, for a health endpoint or a metric.
///
/// Call [`TokenSource::health`](crate::TokenSource::health) once a second rather than once a
/// request: it takes a lock and reads the clocks. `Display` is one line for people.
///
/// # Examples
///
/// See [`TokenSource::health`](crate::TokenSource::health).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    pub(crate) phase: Phase,
    /// Number of tokens received so far, which is also the number of the newest token.
    pub generation: u64,
    /// Time until the token in use expires; `None` if calls have to wait for a token.
    pub life_left: Option<Duration>,
    /// Last failure of a token request, if no token request has succeeded since.
    ///
    /// As long as [`is_ready`](Self::is_ready) is true, your calls do not fail because of it.
    pub last_error: Option<TokenError>,
    /// Time until the next token request: the renewal, or the end of the backoff.
    pub next_attempt: Duration,
    /// Age of the token request in flight, if there is one.
    pub waiting_for: Option<Duration>,
    /// Time since the service began to refuse tokens, if the token in use is
    /// [doubted](crate::TokenSource#refused-tokens): refused, and not accepted since. `None` if not.
    pub refused_for: Option<Duration>,
    /// Time since the last token was received; `None` before the first.
    pub last_success: Option<Duration>,
    /// Address of the token endpoint, or of the document that names it.
    pub endpoint: String,
}

/// Condition of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There has been no token yet.
    Absent,
    Fresh,
    /// Valid, but due for renewal.
    Stale,
    /// Valid by its lifetime, but refused by the service.
    Doubted,
    Expired,
}

// === impl Health ===

impl Health {
    /// Whether there is a valid token. If so, new calls wait for a second at most, while a refused
    /// token is replaced.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.life_left.is_some()
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::Absent => "absent",
            Phase::Fresh => "fresh",
            Phase::Stale => "stale",
            Phase::Doubted => "doubted",
            Phase::Expired => "expired",
        };
        write!(f, "token {} is {phase}", self.generation)?;
        if let Some(time) = self.refused_for {
            write!(f, "; refused for {:.0} s", time.as_secs_f64())?;
        }
        if let Some(time) = self.last_success {
            write!(f, "; the last one came {:.0} s ago", time.as_secs_f64())?;
        }
        match self.waiting_for {
            Some(time) => write!(
                f,
                "; waiting for {} for {:.1} s",
                self.endpoint,
                time.as_secs_f64()
            )?,
            None => write!(
                f,
                "; next attempt in {:.0} s",
                self.next_attempt.as_secs_f64()
            )?,
        }
        match &self.last_error {
            Some(error) => write!(f, "; {error}"),
            None => Ok(()),
        }
    }
}
