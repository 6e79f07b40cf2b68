//! The crate's error: one word wide, with the kind, the facts, and the next move.

use std::error::Error as StdError;
use std::fmt;
use std::time::{Duration, SystemTime};

use http::{Method, StatusCode};
use tower::BoxError;

use self::facts::Facts;
use crate::chain;
use crate::classify::transport;
use crate::kind::Kind;
use crate::sent::Sent;
use crate::stop::Stop;

pub(crate) mod body;
pub(crate) mod facts;
pub(crate) mod text;

/// Says what went wrong with a request, whether to try again, and when.
///
/// No text of it has a token, a secret or the query of a URL, its `Debug` included.
/// [`Display`](fmt::Display) is one line that says what happened and what to do next, without the
/// source; the chain of [`source`](StdError::source) is complete.
///
/// Layers of other crates become part of the picture by [`new`](Self::new): the retry layer treats
/// their failures like its own.
///
/// # Examples
///
/// ```
/// use tower_tds_errors::{Error, Kind, Sent};
///
/// let error = Error::new(Kind::LimitTimeout, "waited 5 s for one of 60 permits");
/// assert!(error.is_retryable() && error.is_timeout());
/// assert_eq!(error.sent(), Sent::Never);
/// assert_eq!(
///     error.to_string(),
///     "no permit was free in time; send less at once, or allow a longer wait",
/// );
/// ```
pub struct Error {
    inner: Box<Inner>,
}

struct Inner {
    facts: Facts,
    earlier: Option<Error>,
    source: Option<BoxError>,
}

// === impl Error ===

impl Error {
    /// An error of `kind`, caused by `source`.
    #[must_use]
    pub fn new(kind: Kind, source: impl Into<BoxError>) -> Self {
        Self::build(Facts::new(kind), Some(source.into()))
    }

    /// Sets the least wait before another attempt.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.facts_mut().set_retry_after(wait);
        self
    }

    /// Finds an error of this type in `error` or in what it wraps.
    #[must_use]
    pub fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        chain::find(error)
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.facts().kind
    }

    /// Whether the same request, sent again, may succeed: [`Kind::is_retryable`].
    ///
    /// It stays true when the attempts are used up; [`stopped_because`](Self::stopped_because)
    /// says that. A [`Rule`](crate::Rule) that forbids it makes it false.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.kind().is_retryable() && self.stopped_because() != Some(Stop::Vetoed)
    }

    /// Whether it is about the token or the credentials: [`Kind::is_auth`].
    #[must_use]
    pub fn is_auth(&self) -> bool {
        self.kind().is_auth()
    }

    /// Whether a limit of the service refused it: [`Kind::is_throttled`].
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        self.kind().is_throttled()
    }

    /// Whether no connection could be made: [`Kind::is_connect`].
    #[must_use]
    pub fn is_connect(&self) -> bool {
        self.kind().is_connect()
    }

    /// Whether something took too long: [`Kind::is_timeout`].
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.kind().is_timeout()
    }

    /// Whether the request can have reached the service.
    #[must_use]
    pub fn sent(&self) -> Sent {
        self.kind().sent()
    }

    /// The status, if the service answered.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.facts().status
    }

    /// The service's own words: at most 200 characters, control characters escaped, and whatever
    /// looks like a token taken out.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.facts().message.as_deref()
    }

    /// What was read of the answer's body: its coding undone, and at most 16 KiB of it.
    ///
    /// It may hold what the service echoed of the request. So it is in no text of this error.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.facts().body.bytes
    }

    /// Whether the body had more than was read: it broke off, or met a bound.
    #[must_use]
    pub fn is_body_cut(&self) -> bool {
        self.facts().body.cut
    }

    /// Where a redirect leads, without user, password and query.
    #[must_use]
    pub fn location(&self) -> Option<&str> {
        self.facts().location.as_deref()
    }

    /// The least wait before another attempt, counted from when the error came: what the service
    /// asks for, and never less than a second after [`Kind::RateExceeded`].
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.facts().retry_after
    }

    /// When that wait ends, on this machine's wall clock.
    #[must_use]
    pub fn retry_at(&self) -> Option<SystemTime> {
        self.facts().retry_at
    }

    /// The id to quote to the service's owner.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.facts().request_id.as_deref()
    }

    /// The method of the request.
    #[must_use]
    pub fn method(&self) -> Option<&Method> {
        self.facts().method.as_ref()
    }

    /// The URI of the request, without user, password and query.
    #[must_use]
    pub fn uri(&self) -> Option<&str> {
        self.facts().uri.as_deref()
    }

    /// How many attempts were made. Outside a retry layer it is 1.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.facts().attempts
    }

    /// How long all attempts and waits took, if a retry layer watched.
    #[must_use]
    pub fn elapsed(&self) -> Option<Duration> {
        self.facts().elapsed
    }

    /// How much of [`elapsed`](Self::elapsed) was spent in waits between attempts.
    #[must_use]
    pub fn slept(&self) -> Duration {
        self.facts().slept
    }

    /// What the attempts before this one failed with, the oldest first: the first sixteen of them.
    #[must_use]
    pub fn history(&self) -> &[Kind] {
        &self.facts().history
    }

    /// How many bytes of a success came before it broke off, told by [`Guard`](crate::Guard).
    #[must_use]
    pub fn received(&self) -> Option<u64> {
        self.facts().received
    }

    /// How many bytes the success had announced, told by [`Guard`](crate::Guard).
    #[must_use]
    pub fn expected(&self) -> Option<u64> {
        self.facts().expected
    }

    /// Why the retry layer gave up, if there was one. An outer retry layer leaves such an error
    /// alone, so that nesting does not multiply requests.
    #[must_use]
    pub fn stopped_because(&self) -> Option<Stop> {
        self.facts().stop
    }

    /// The failure of the attempt before, where this one is not an answer to an attempt: the
    /// service below did not become ready again, or the deadline cut the attempt off.
    #[must_use]
    pub fn earlier(&self) -> Option<&Self> {
        self.inner.earlier.as_ref()
    }

    pub(crate) fn build(facts: Facts, source: Option<BoxError>) -> Self {
        let inner = Inner {
            facts,
            earlier: None,
            source,
        };
        Self {
            inner: Box::new(inner),
        }
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.inner.facts
    }

    pub(crate) fn facts_mut(&mut self) -> &mut Facts {
        &mut self.inner.facts
    }

    pub(crate) fn set_earlier(&mut self, earlier: Option<Self>) {
        self.inner.earlier = earlier;
    }
}

/// Takes the error out of its box, or finds it in there, or names the transport error.
///
/// So the layers of this crate work over `Buffer` and its like, whose errors are boxed.
impl From<BoxError> for Error {
    fn from(error: BoxError) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(error) => return *error,
            Err(error) => error,
        };
        let error = transport::redacted(error);
        let facts = match Self::find(&*error) {
            Some(found) => found.facts().clone(),
            None => Facts::new(transport::kind(&*error)),
        };
        Self::build(facts, Some(error))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.inner.source.as_deref()?;
        Some(source)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts().fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            facts,
            earlier,
            source,
        } = &*self.inner;
        let mut f = f.debug_struct("Error");
        f.field("facts", facts);
        if let Some(earlier) = earlier {
            f.field("earlier", earlier);
        }
        f.field("source", source).finish()
    }
}

#[cfg(test)]
mod tests;
