//! Errors of a limiter, besides the inner service's own.

use std::{error, fmt, time::Duration};

use tower_tds_outcome::{Cause, Outcome, Resend, Secrets, Sent};

/// Error of a call that a limit rejected or timed out, or in which the service below failed.
///
/// | predicate | what happened | what to do |
/// |---|---|---|
/// | [`is_timeout`](Self::is_timeout) | the call reached its deadline or [`response_timeout`](crate::RequestLimitLayer::response_timeout), or a connect its longest wait | make fewer calls at once, or allow more time |
/// | [`is_rejected`](Self::is_rejected) | the queue is full, the pause is too long, or too little time was left at its turn | try again after [`retry_after`](Self::retry_after) |
/// | [`is_deadline`](Self::is_deadline) | the call's own deadline has passed, or would pass before the answer | do not try again within the same deadline |
/// | none | the service below failed | handle the [source](error::Error::source) |
///
/// Layers above find the [`Outcome`] of the call in its chain of sources.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tower_tds_limits::{Error, WaitCause};
///
/// /// When to make a call again that must not be carried out twice.
/// fn again_after(error: &Error) -> Option<Duration> {
///     match error.cause() {
///         // It may have been sent, or the service below failed.
///         Some(WaitCause::Response) | None => None,
///         Some(_) if error.is_deadline() => None,
///         Some(_) if error.is_rejected() => error.retry_after(),
///         Some(_) => Some(Duration::from_secs(1)),
///     }
/// }
/// ```
pub struct Error(Box<Repr>);

enum Repr {
    /// Decision of the limiter on a call: what happened, in the wait for what, and the time that the call took.
    /// For a rejected call it is the time until the limit opens, if that is known.
    Limit(Decision, WaitCause, Option<Duration>, Cause),
    /// The service below failed, perhaps for a limit of the service.
    Below(BoxError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    TimedOut,
    /// Timed out at its deadline.
    Deadline,
    Rejected,
    /// Rejected because of its deadline.
    TooLate,
}

/// Cause of a call's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WaitCause {
    /// Readiness of the inner service, for example until it has a token.
    Readiness,
    /// Permit of a quota.
    Rate,
    /// Slot among the requests in flight: [`Limits::in_flight`](crate::Limits::in_flight).
    InFlight,
    /// End of the silence after a 423 or a 416.
    Silence,
    /// End of the pause of this layer after a 429.
    Pause,
    /// Socket within [`Limits::connections`](crate::Limits::connections), or a connection of the
    /// client.
    Connection,
    /// Response head, after the request was sent.
    Response,
    /// [`Share`](crate::Share) of the limits, because the last one is empty or has ended, perhaps because of this
    /// [fault](crate::Limiter::set_share).
    Share(Option<&'static str>),
}

// === impl Error ===

impl Error {
    /// Error of a call that the limiter ended, after `time` or with so much of its wait left.
    pub(crate) fn new(decision: Decision, cause: WaitCause, time: Option<Duration>) -> Self {
        let is_rejected = matches!(decision, Decision::Rejected | Decision::TooLate);
        let wait = time.filter(|_| is_rejected).map(round_up);
        let mut said = Cause::new(match (decision, cause) {
            (Decision::Deadline, _) | (_, WaitCause::Response) => Outcome::Lost,
            (_, WaitCause::Pause) if is_rejected => Outcome::QuotaExceeded(wait),
            _ => Outcome::NoPermit,
        });
        if cause != WaitCause::Response {
            said.sent = Sent::Never;
        }
        said.wait = wait;
        // Another attempt would have even less time.
        let is_too_late = matches!(decision, Decision::Deadline | Decision::TooLate);
        said.resend = is_too_late.then_some(Resend::TooLate);
        if cause == WaitCause::InFlight {
            said.next = Some("read or drop the bodies of earlier responses".into());
        }
        // A call that is too late at its turn has not waited.
        said.waited_for = (decision != Decision::TooLate).then(|| match cause {
            WaitCause::Readiness => "a token".into(),
            cause => cause.to_string().into(),
        });
        let time = wait.or(time);
        Self(Box::new(Repr::Limit(decision, cause, time, said)))
    }

    /// Error of a call that failed below. If a limit of the service refused it, this limiter spaces the calls that
    /// follow, so another one is free.
    pub(crate) fn below(error: impl Into<BoxError>) -> Self {
        let error = error.into();
        Self(Box::new(Repr::Below(match Outcome::of_error(&*error) {
            Some(
                outcome @ (Outcome::RateExceeded
                | Outcome::ConnectionsExceeded
                | Outcome::QuotaExceeded(_)),
            ) => {
                let mut cause = Cause::new(outcome);
                cause.resend = Some(Resend::Free);
                cause.over(error).into()
            }
            _ => error,
        })))
    }

    fn is(&self, any: [Decision; 2]) -> bool {
        matches!(&*self.0, Repr::Limit(decision, ..) if any.contains(decision))
    }

    /// Returns what the call waited for, if the limiter ended it. Unless that is a
    /// [response](WaitCause::Response), the request was not sent, and you can make the call again whatever
    /// its method.
    #[must_use]
    pub fn cause(&self) -> Option<WaitCause> {
        match *self.0 {
            Repr::Limit(_, cause, ..) => Some(cause),
            Repr::Below(_) => None,
        }
    }

    /// Whether the call reached its deadline or another bound.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.is([Decision::TimedOut, Decision::Deadline])
    }

    /// Whether the call's deadline ended it, because it has passed or would have passed before the
    /// answer. Do not try again within the same deadline.
    #[must_use]
    pub fn is_deadline(&self) -> bool {
        self.is([Decision::Deadline, Decision::TooLate])
    }

    /// Whether the call was rejected, on arrival or while it waited: the queue is full, the pause is too
    /// long, or too little time was left at its turn.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        self.is([Decision::Rejected, Decision::TooLate])
    }

    /// Returns how long to wait before you repeat a rejected call, if that is known, in whole
    /// milliseconds.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match *self.0 {
            Repr::Limit(Decision::Rejected | Decision::TooLate, _, time, _) => time,
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr::Limit(decision, cause, time, _) = &*self.0 else {
            return f.write_str("the service below the limit failed");
        };
        match (*decision, time.map(whole_millis)) {
            (Decision::TimedOut | Decision::Deadline, waited) => {
                let waited = waited.unwrap_or_default();
                write!(f, "timed out after {waited:?} waiting for {cause}")
            }
            (Decision::Rejected | Decision::TooLate, Some(wait)) => {
                write!(f, "rejected: waiting for {cause} would take {wait:?}")
            }
            (Decision::TooLate, None) => write!(
                f,
                "rejected: after the wait for {cause} too little time is left for an answer"
            ),
            (Decision::Rejected, None) => {
                write!(f, "rejected: the call would have to wait for {cause}")
            }
        }?;
        f.write_str(match cause {
            WaitCause::Response => "; request may have been sent",
            _ => "; request not sent",
        })
    }
}

/// Prints the line, and that of the error below, redacted: the `Debug` of an HTTP client may show the query of its URL.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Repr::Limit(..) => write!(f, "{self}"),
            Repr::Below(error) => {
                write!(f, "{self}: {}", Secrets::default().line(&error.to_string()))
            }
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &*self.0 {
            Repr::Limit(.., cause) => Some(cause),
            Repr::Below(error) => Some(&**error),
        }
    }
}

// === impl WaitCause ===

impl WaitCause {
    /// Returns a short, stable name for labels and fields, and the words of a text.
    pub(crate) const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Readiness => ("readiness", "the inner service, such as a token"),
            Self::Rate => ("rate", "the rate limit"),
            Self::InFlight => ("in_flight", "another response body to end"),
            Self::Silence => ("silence", "the end of the silence after a refusal"),
            Self::Pause => ("pause", "the end of the pause after a 429"),
            Self::Connection => ("connection", "a connection"),
            Self::Response => ("response", "a response"),
            Self::Share(None) => ("share", "a share of the fleet's limits"),
            Self::Share(Some(_)) => ("store", "a share of the fleet's limits"),
        }
    }
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts().1)?;
        match self {
            Self::Share(Some(fault)) => write!(f, ": {fault}"),
            _ => Ok(()),
        }
    }
}

/// Rounds up to whole milliseconds, the resolution of timers.
fn round_up(wait: Duration) -> Duration {
    whole_millis(wait.saturating_add(Duration::from_nanos(999_999)))
}

fn whole_millis(time: Duration) -> Duration {
    u64::try_from(time.as_millis()).map_or(time, Duration::from_millis)
}

/// Error of tower's own layers.
pub(crate) type BoxError = Box<dyn error::Error + Send + Sync>;
