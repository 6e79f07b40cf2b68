//! The condition of the token at one moment, for health checks and metrics.

use std::{fmt, time::Duration};

use crate::{TokenError, state::Phase};

/// The condition of the token, for a health endpoint or a metric.
///
/// A snapshot by [`TokenSource::health`](crate::TokenSource::health). Making one takes a lock and
/// reads the clocks, so make one a second and not one a request. `Display` is one line for people.
///
/// # Examples
///
/// See [`TokenSource::health`](crate::TokenSource::health).
#[derive(Clone, Debug)]
pub struct Health {
    pub(crate) phase: Phase,
    pub(crate) generation: u64,
    pub(crate) life_left: Option<Duration>,
    pub(crate) last_error: Option<TokenError>,
    pub(crate) next_attempt: Duration,
    pub(crate) waiting_for: Option<Duration>,
    pub(crate) refused_for: Option<Duration>,
    pub(crate) last_success: Option<Duration>,
    pub(crate) endpoint: String,
}

// === impl Health ===

impl Health {
    /// Whether there is a valid token, so that calls do not wait for one.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.life_left.is_some()
    }

    /// For how long the service has been refusing tokens, the one in use among them.
    ///
    /// `None` if the token in use was not refused, or was accepted since.
    #[must_use]
    pub fn refused_for(&self) -> Option<Duration> {
        self.refused_for
    }

    /// How long ago the last token came; `None` before the first.
    #[must_use]
    pub fn last_success(&self) -> Option<Duration> {
        self.last_success
    }

    /// The number of tokens that came.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The rest of the life of the token in use.
    #[must_use]
    pub fn life_left(&self) -> Option<Duration> {
        self.life_left
    }

    /// The last failure of a token request, if none has succeeded since.
    ///
    /// It is no failure of calls while [`is_ready`](Self::is_ready) is true.
    #[must_use]
    pub fn last_error(&self) -> Option<&TokenError> {
        self.last_error.as_ref()
    }

    /// How long it is until the next token request: the renewal, or the end of the backoff.
    #[must_use]
    pub fn next_attempt(&self) -> Duration {
        self.next_attempt
    }

    /// For how long the token request under way has been running, if there is one.
    #[must_use]
    pub fn waiting_for(&self) -> Option<Duration> {
        self.waiting_for
    }

    /// The address of the token endpoint, or of the document that names it.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
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
                "; waiting for {} since {:.1} s",
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
