//! The state of the token at one moment, for health checks and metrics.

use std::{fmt, time::Duration};

use crate::{
    TokenError,
    state::{Phase, Reason},
};

/// Says how the token is: for a health endpoint, a metric, or a look by hand.
///
/// A snapshot of the moment at which [`TokenSource::health`](crate::TokenSource::health) made it.
/// Making one takes a lock and reads the clocks: once a second is nothing, once a request is a
/// waste. `Display` is one line for people, with the number of the token and the reason of the next
/// request.
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
    pub(crate) reason: Reason,
    pub(crate) refused_for: Option<Duration>,
    pub(crate) last_success: Option<Duration>,
    pub(crate) budget_left: u32,
}

// === impl Health ===

impl Health {
    /// Whether there is a valid token: calls go out and wait for nothing.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.life_left.is_some()
    }

    /// For how long the service has been refusing tokens, if it does: an alarm where it grows.
    #[must_use]
    pub fn refused_for(&self) -> Option<Duration> {
        self.refused_for
    }

    /// How long ago the last token came; `None` before the first.
    #[must_use]
    pub fn last_success(&self) -> Option<Duration> {
        self.last_success
    }

    /// How many tokens there have been: the number of the newest, zero before the first.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How long the token in use still lives, if there is one.
    #[must_use]
    pub fn life_left(&self) -> Option<Duration> {
        self.life_left
    }

    /// Why the last token request failed, if none has succeeded since.
    ///
    /// While [`is_ready`](Self::is_ready) holds it is no trouble yet.
    #[must_use]
    pub fn last_error(&self) -> Option<&TokenError> {
        self.last_error.as_ref()
    }

    /// How long it is until the next token request: the renewal, the successor of a refused token,
    /// or, with no token, the first that a call may cause.
    #[must_use]
    pub fn next_attempt(&self) -> Duration {
        self.next_attempt
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::Absent => "absent",
            Phase::Fresh => "fresh",
            Phase::Stale => "stale",
            Phase::Doubted => "doubted",
            Phase::Refused => "refused",
            Phase::Expired => "expired",
        };
        write!(f, "token {} is {phase}", self.generation)?;
        if let Some(time) = self.refused_for {
            write!(f, "; refused for {:.0} s", time.as_secs_f64())?;
        }
        if let Some(time) = self.last_success {
            write!(f, "; the last one came {:.0} s ago", time.as_secs_f64())?;
        }
        let wait = self.next_attempt.as_secs_f64();
        let reason = match self.reason {
            Reason::Start => "there is none",
            Reason::Schedule => "it is renewed ahead of its end",
            Reason::Expiry => "the last one has expired",
            Reason::Refused => "the service refuses it",
            Reason::Unexplained => "the service refused a call without a reason",
        };
        write!(f, "; the next is asked for in {wait:.0} s: {reason}")?;
        write!(f, "; requests left: {}", self.budget_left)?;
        match &self.last_error {
            Some(error) => write!(f, "; {error}"),
            None => Ok(()),
        }
    }
}
