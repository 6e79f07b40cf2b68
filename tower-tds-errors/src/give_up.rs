//! The reasons against a further attempt.

use std::fmt;

/// The reason why the retry layer made no further attempt.
///
/// Its text is a stable name, for logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GiveUp {
    /// Another attempt cannot help, or the one remedy failed: a second refused token.
    Fatal,
    /// The attempts are used up.
    Attempts,
    /// The deadline has passed, or leaves no time for the next wait.
    Deadline,
    /// The service requests a longer wait than the layer allows; see
    /// [`Error::retry_at`](crate::Error::retry_at).
    HintTooLong,
    /// The budget of retries is used up.
    Budget,
    /// The body cannot be sent twice.
    NotReplayable,
    /// The request may have arrived, and its method may not run twice; see
    /// [`Repeat`](crate::Repeat).
    NotIdempotent,
    /// The service below failed to become ready again, or there is no runtime to wait in.
    NotReady,
    /// A layer below or the request itself forbids a retry.
    Forbidden,
}

// === impl GiveUp ===

impl GiveUp {
    /// The phrase of a message; empty for a fatal failure.
    pub(crate) const fn phrase(self) -> &'static str {
        self.row().1
    }

    const fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::Fatal => ("fatal", ""),
            Self::Attempts => ("attempts", "; all attempts are used up"),
            Self::Deadline => ("deadline", "; the deadline leaves no time for more"),
            Self::HintTooLong => (
                "hint_too_long",
                "; the asked wait is too long to sleep through",
            ),
            Self::Budget => ("budget", "; not retried as too many requests fail"),
            Self::NotReplayable => (
                "not_replayable",
                "; not retried as the body cannot be sent twice",
            ),
            Self::NotIdempotent => (
                "not_idempotent",
                "; not retried as the method may not run twice",
            ),
            Self::NotReady => (
                "not_ready",
                "; the service below did not become ready again",
            ),
            Self::Forbidden => ("forbidden", "; not retried as that is forbidden"),
        }
    }
}

impl fmt::Display for GiveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().0)
    }
}
