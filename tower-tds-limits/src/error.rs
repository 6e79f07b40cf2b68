//! The errors of a limiter, beside the inner service's own.

use std::{error, fmt, time::Duration};

use crate::WaitCause;

/// An error of a limit's `Service`: its own, or the inner service's unchanged.
///
/// It does not implement `std::error::Error`, so that it converts into a boxed error even where it
/// wraps one. Boxed, it is the [`LimitError`] or the inner error itself.
#[derive(Debug)]
pub enum Error<E> {
    /// The limiter's error.
    Limit(LimitError),
    /// The inner service failed.
    Inner(E),
}

/// The limiter did not let a request or a connection through, or ended a call at a bound.
///
/// # Errors
/// - [`is_timeout`](Self::is_timeout): the call reached
///   [`max_wait`](crate::RequestLimitLayer::max_wait), its deadline, or
///   [`answer_timeout`](crate::RequestLimitLayer::answer_timeout). Make fewer calls at once, or allow
///   more time.
/// - [`is_rejected`](Self::is_rejected): the call would have had to wait, and may not. Try again after
///   [`retry_after`](Self::retry_after).
/// - Otherwise a pool abandoned a connection while it waited for its permit. Only the pool gets this
///   error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitError {
    kind: Kind,
    cause: WaitCause,
    was_sent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// After so long.
    TimedOut(Duration),
    /// After so long.
    Deadline(Duration),
    /// The wait until the limit opens, if it is known.
    Rejected(Option<Duration>),
    Abandoned,
}

// === impl LimitError ===

impl LimitError {
    /// A wait that reached its bound after `waited`.
    #[must_use]
    pub fn timed_out(cause: WaitCause, waited: Duration) -> Self {
        Self {
            kind: Kind::TimedOut(waited),
            cause,
            was_sent: false,
        }
    }

    /// A call that may not wait, with the length of the wait where it is known.
    #[must_use]
    pub fn rejected(cause: WaitCause, wait: Option<Duration>) -> Self {
        Self {
            kind: Kind::Rejected(wait.map(round_up)),
            cause,
            was_sent: false,
        }
    }

    /// A wait that the call's deadline ended after `waited`.
    pub(crate) fn deadline(cause: WaitCause, waited: Duration) -> Self {
        Self {
            kind: Kind::Deadline(waited),
            cause,
            was_sent: false,
        }
    }

    /// A call without a response in time.
    pub(crate) fn unanswered(was_sent: bool, waited: Duration) -> Self {
        Self {
            kind: Kind::Deadline(waited),
            cause: if was_sent {
                WaitCause::Response
            } else {
                WaitCause::Connection
            },
            was_sent,
        }
    }

    pub(crate) fn abandoned() -> Self {
        Self {
            kind: Kind::Abandoned,
            cause: WaitCause::Connection,
            was_sent: false,
        }
    }

    /// The cause of the wait.
    #[must_use]
    pub fn cause(&self) -> WaitCause {
        self.cause
    }

    /// Whether the wait reached its bound.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.kind, Kind::TimedOut(_) | Kind::Deadline(_))
    }

    /// Whether the deadline or the response timeout ended the call, and not the longest wait.
    #[must_use]
    pub fn is_deadline(&self) -> bool {
        matches!(self.kind, Kind::Deadline(_))
    }

    /// Whether the call would have had to wait, and may not.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        matches!(self.kind, Kind::Rejected(_))
    }

    /// Whether the request may have been sent. A call that was not sent can be made again, whatever
    /// its method.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        self.was_sent
    }

    /// The least wait of a rejected call, if it was known, in whole milliseconds.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            Kind::Rejected(wait) => wait,
            Kind::TimedOut(_) | Kind::Deadline(_) | Kind::Abandoned => None,
        }
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = self.cause;
        match &self.kind {
            Kind::TimedOut(waited) | Kind::Deadline(waited) => {
                write!(f, "timed out after {waited:?} waiting for {cause}; ")?;
                f.write_str(if self.was_sent {
                    "the request was sent"
                } else {
                    "request not sent"
                })
            }
            Kind::Rejected(Some(wait)) => write!(
                f,
                "rejected: waiting for {cause} would take {}; request not sent",
                Rough(*wait)
            ),
            Kind::Rejected(None) => {
                write!(
                    f,
                    "rejected: it would have to wait for {cause}; request not sent"
                )
            }
            Kind::Abandoned => f.write_str("connection abandoned by its pool; request not sent"),
        }
    }
}

impl error::Error for LimitError {}

/// A duration rounded for a message.
struct Rough(Duration);

impl fmt::Display for Rough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            ..120 => write!(f, "{:?}", self.0),
            seconds @ ..7_200 => write!(f, "{} min", seconds / 60),
            seconds @ ..172_800 => write!(f, "{} h", seconds / 3_600),
            seconds => write!(f, "{} days", seconds / 86_400),
        }
    }
}

// === impl Error ===

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(limit) => limit.fmt(f),
            Self::Inner(inner) => inner.fmt(f),
        }
    }
}

impl<E: Into<Self>> From<Error<E>> for BoxError {
    fn from(error: Error<E>) -> Self {
        match error {
            Error::Limit(limit) => limit.into(),
            Error::Inner(inner) => inner.into(),
        }
    }
}

/// To whole milliseconds, the resolution of timers.
fn round_up(wait: Duration) -> Duration {
    let more = Duration::from_nanos(999_999);
    let millis = wait.saturating_add(more).as_millis();
    u64::try_from(millis).map_or(wait, Duration::from_millis)
}

/// The error of tower's own layers.
type BoxError = Box<dyn error::Error + Send + Sync>;
