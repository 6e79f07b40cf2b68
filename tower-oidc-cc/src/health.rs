//! How the token is, at one moment.

use std::time::Duration;

use crate::TokenError;

/// Says how the token is: for a health endpoint, a metric, or a look by hand.
///
/// A snapshot of the moment at which [`TokenSource::health`](crate::TokenSource::health) made it. Making one
/// takes a lock and reads the clocks: once a second is nothing, once a request is a waste.
///
/// # Examples
///
/// See [`TokenSource::health`](crate::TokenSource::health).
#[derive(Clone, Debug)]
pub struct Health {
    pub(crate) generation: u64,
    pub(crate) age: Option<Duration>,
    pub(crate) life_left: Option<Duration>,
    pub(crate) last_error: Option<TokenError>,
    pub(crate) next_attempt: Duration,
    pub(crate) budget_left: u32,
}

// === impl Health ===

impl Health {
    /// Whether there is a valid token: calls go out and wait for nothing.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.life_left.is_some()
    }

    /// The number of the newest token; zero before the first.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How long the token in use has been here, if there is one.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.age
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

    /// How long it is until the next token request: the renewal, or, with no token, the first that
    /// a call may cause.
    #[must_use]
    pub fn next_attempt(&self) -> Duration {
        self.next_attempt
    }

    /// How many token requests the [`TokenBudget`](crate::TokenBudget) allows at this moment.
    #[must_use]
    pub fn budget_left(&self) -> u32 {
        self.budget_left
    }
}
