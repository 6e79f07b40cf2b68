//! The errors of a limiter, beside the inner service's own.

use std::{error, fmt, time::Duration};

use crate::WaitCause;

/// An error of a limit's `Service`: its own, or the inner service's as it was.
///
/// It is no `std::error::Error`, so that it can become a boxed one whatever it wraps, another boxed
/// one included: `?` and tower's layers take it as it is. Boxed, it is the [`LimitError`] or the
/// inner error itself.
#[derive(Debug)]
pub enum Error<E> {
    /// The limiter did not let the request through.
    Limit(LimitError),
    /// The inner service failed.
    Inner(E),
}

/// The limiter did not let a request or a connection through.
///
/// Nothing was sent, so the call can safely be made again, whatever its method.
///
/// # Errors
/// - [`is_timeout`](Self::is_timeout): the wait for a permit reached
///   [`Limits::max_wait`](crate::Limits::max_wait). Make fewer calls at once, or allow a longer
///   wait.
/// - [`is_rejected`](Self::is_rejected): there was no permit at once where no wait is allowed, or
///   the service has said that this credential's quota is used up for more than a minute, of which
///   the [`cause`](Self::cause) is [`WaitCause::Pause`]. Try again after
///   [`retry_after`](Self::retry_after), or do without.
/// - Otherwise a pool gave up a connection while it waited for its permit. Nobody sees this
///   error but the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitError {
    kind: Kind,
    cause: WaitCause,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// After so long.
    TimedOut(Duration),
    /// For so long, where that is known.
    Rejected(Option<Duration>),
    Orphaned,
}

// === impl LimitError ===

impl LimitError {
    /// The wait for this reached its bound after `waited`.
    #[must_use]
    pub fn timed_out(cause: WaitCause, waited: Duration) -> Self {
        let kind = Kind::TimedOut(waited);
        Self { kind, cause }
    }

    /// There is none of this at once, and for so long, where that is known.
    #[must_use]
    pub fn rejected(cause: WaitCause, wait: Option<Duration>) -> Self {
        let kind = Kind::Rejected(wait.map(round_up));
        Self { kind, cause }
    }

    pub(crate) fn orphaned() -> Self {
        Self {
            kind: Kind::Orphaned,
            cause: WaitCause::Connection,
        }
    }

    /// What there was no permit for.
    #[must_use]
    pub fn cause(&self) -> WaitCause {
        self.cause
    }

    /// Whether the wait for a permit reached its bound.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.kind, Kind::TimedOut(_))
    }

    /// Whether there was no permit at once, and no wait was wanted or worth while.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        matches!(self.kind, Kind::Rejected(_))
    }

    /// For how long there was to be no permit, where that was known when it was refused, in whole
    /// milliseconds: at least, since later answers can put it off, and others may wait before this one.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            Kind::Rejected(wait) => wait,
            Kind::TimedOut(_) | Kind::Orphaned => None,
        }
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.kind, self.cause) {
            (Kind::TimedOut(waited), cause) => write!(
                f,
                "no permit within {waited:?}, which was waited for {cause}; nothing was sent: \
                 make fewer calls at once or allow a longer wait"
            ),
            (Kind::Rejected(Some(wait)), WaitCause::Pause) => write!(
                f,
                "the service has said that the quota is used up for {wait:?} more, nothing was \
                 sent: try again after that"
            ),
            (Kind::Rejected(None), WaitCause::Pause) => f.write_str(
                "the service has said that the quota is used up, nothing was sent: try again later",
            ),
            (Kind::Rejected(Some(wait)), cause) => write!(
                f,
                "no permit for {wait:?}, for want of {cause}; nothing was sent: try again after that"
            ),
            (Kind::Rejected(None), cause) => write!(
                f,
                "no permit at once, for want of {cause}; nothing was sent: make fewer calls at once"
            ),
            (Kind::Orphaned, _) => f.write_str("nobody waits for this connection any more"),
        }
    }
}

impl error::Error for LimitError {}

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

/// What timers tell apart.
fn round_up(wait: Duration) -> Duration {
    let more = Duration::from_nanos(999_999);
    let millis = wait.saturating_add(more).as_millis();
    u64::try_from(millis).map_or(wait, Duration::from_millis)
}

/// What tower's own layers make of errors.
type BoxError = Box<dyn error::Error + Send + Sync>;
