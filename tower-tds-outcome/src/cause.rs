//! The cause in the chain of an error, from which the layers above read the meaning of a failure.

use std::{borrow::Cow, error::Error, fmt, io, iter, sync::Arc, time::Duration};

use http::Method;

use crate::{outcome::Outcome, secrets::Secrets};

/// The meaning of a failure, in the chain of its error's sources, so that each layer above can act on it.
///
/// Return it from the [`source`](Error::source) of your own error type. A layer that knows more than the ones below puts
/// another one above theirs: the outermost decides whether the call is sent again, and each field that it leaves open
/// is taken from below.
///
/// ```
/// use std::{error::Error, fmt};
/// use tower_tds_outcome::{Cause, Outcome};
///
/// #[derive(Debug)]
/// struct SpeedingTicket(Cause);
///
/// impl fmt::Display for SpeedingTicket {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         f.write_str("too fast")
///     }
/// }
///
/// impl Error for SpeedingTicket {
///     fn source(&self) -> Option<&(dyn Error + 'static)> {
///         Some(&self.0)
///     }
/// }
///
/// let error = SpeedingTicket(Cause::new(Outcome::RateExceeded));
/// assert_eq!(Outcome::of_error(&error), Some(Outcome::RateExceeded));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Cause {
    /// Outcome of the call.
    pub outcome: Outcome,
    /// Whether the request was sent. [`new`](Self::new) takes it from the outcome.
    pub sent: Sent,
    /// How long to wait before the call is sent again.
    pub wait: Option<Duration>,
    /// Whether the call may be sent again; by the rule of its outcome if it is `None`.
    pub resend: Option<Resend>,
    /// Cause of the wait in which the call ended, for example `a token`.
    pub waited_for: Option<Cow<'static, str>>,
    /// Advice for the next step.
    pub next: Option<Cow<'static, str>>,
    /// Method and [place](crate::place) of the request that failed, if it is not the caller's: a token request.
    pub request: Option<(Method, Box<str>)>,
    /// Values that no text about the failure may show.
    pub secrets: Option<Secrets>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Whether a failed call may be sent again, in place of the rule for its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resend {
    /// Not at all.
    Forbidden,
    /// Not within the call's deadline.
    TooLate,
    /// Yes, at no cost to a budget: it can be expected to succeed, or a layer below spaces such calls.
    Free,
    /// Yes, as after an outage.
    Paid,
}

/// Whether a failed request can have reached the service.
///
/// Use it before you repeat a request that is not idempotent, as the retry layer does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sent {
    /// The service responded, so it has received and counted the request.
    Answered,
    /// The request was not received, or the server reported that it did not process it.
    Never,
    /// There is no response, and the request may have arrived.
    #[default]
    Unknown,
}

/// Boxed error, as tower's own layers return it.
type BoxError = Box<dyn Error + Send + Sync>;

// === impl Cause ===

impl Cause {
    /// Creates the cause of a failure with this outcome.
    #[must_use]
    pub fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            sent: outcome.sent(),
            wait: None,
            resend: None,
            waited_for: None,
            next: None,
            request: None,
            secrets: None,
            source: None,
        }
    }

    /// Sets the error that led to it, the next in the chain.
    #[must_use]
    pub fn over(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into().into());
        self
    }

    /// Returns the outermost cause in the chain of an error.
    #[must_use]
    pub fn of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        chain(error).find_map(<dyn Error>::downcast_ref)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "outcome {:?}", self.outcome)
    }
}

/// Shows no text of the source, which may hold a secret.
impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Cause");
        f.field("outcome", &self.outcome).field("sent", &self.sent);
        f.field("wait", &self.wait).field("resend", &self.resend);
        f.finish_non_exhaustive()
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source: &(dyn Error + 'static) = self.source.as_deref()?;
        Some(source)
    }
}

// === impl Outcome ===

impl Outcome {
    /// Returns what an error means for token and limits: the outcome of its outermost [`Cause`], or `Unsent` if that
    /// request was not sent, whatever the reason.
    #[must_use]
    pub fn of_error(error: &(dyn Error + 'static)) -> Option<Self> {
        Cause::of(error).map(|cause| match cause.sent {
            Sent::Never => Self::Unsent,
            _ => cause.outcome,
        })
    }

    /// Whether a request with this outcome can have reached the service.
    const fn sent(self) -> Sent {
        match self {
            Self::NoPermit
            | Self::NoToken
            | Self::TokenDenied
            | Self::AddressNotAllowed
            | Self::Unsent => Sent::Never,
            Self::Lost => Sent::Unknown,
            _ => Sent::Answered,
        }
    }
}

/// Iterates over an error and its causes.
///
/// `io::Error::source` skips the error that it wraps, which may be that of TLS; this iterator does not. It ends after
/// 32 links, in case a chain leads back to itself.
pub fn chain<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |error| below(*error)).take(DEEPEST)
}

fn below<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let io = error.downcast_ref::<io::Error>();
    match io.and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

/// Several times the deepest known chain, which has 7 links.
const DEEPEST: usize = 32;

#[cfg(test)]
mod tests;
