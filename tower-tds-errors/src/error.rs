//! The crate's error: one word wide, with the kind, the facts, and the next move.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use http::StatusCode;
use tower::BoxError;

use self::facts::Facts;
use self::roles::Roles;
use crate::chain;
use crate::classify::transport;
use crate::kind::Kind;
use crate::kind::table::Advice;
use crate::sent::Sent;
use crate::stop::Stop;

mod answer;
pub(crate) mod body;
mod call;
mod convert;
pub(crate) mod facts;
mod roles;
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
        let source = transport::redacted(source.into());
        Self::build(Facts::new(kind), Some(source))
    }

    /// Sets the least wait before another attempt.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.facts_mut().set_retry_after(wait);
        self
    }

    /// Forbids that it is retried, as a [`Rule`](crate::Rule) does: for a layer that knows that the
    /// next attempt would meet the same, say with the same token.
    pub fn forbid_retry(&mut self) {
        self.facts_mut().stop = Some(Stop::Vetoed);
    }

    /// Adds the realm roles that the refused token carries: for a layer that knows the token.
    ///
    /// They go into the line for people, up to 200 characters of them, and into
    /// [`realm_roles`](Self::realm_roles).
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_tds_errors::{Error, Kind};
    ///
    /// let mut error = Error::new(Kind::MissingRole, "Missing required realm role");
    /// error.set_realm_roles(&["live", "bus"]);
    /// assert_eq!(
    ///     error.to_string(),
    ///     "the token lacks the role for this data, the token carries the realm roles live, bus; \
    ///      have the role granted to the member that owns the key",
    /// );
    /// ```
    pub fn set_realm_roles(&mut self, roles: &[impl AsRef<str>]) {
        self.facts_mut().roles = Some(Roles::new(roles));
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
    /// says that. What forbids it makes it false, and so does a
    /// [`Kind::Unauthorized`] whose body was cut: what came of it may have left out the reason.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.advice() != Advice::Never && self.stopped_because() != Some(Stop::Vetoed)
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
    ///
    /// An answer says so, whatever its [`kind`](Self::kind) is, a rule's too; but for that of a
    /// proxy (407), which let nothing through.
    #[must_use]
    pub fn sent(&self) -> Sent {
        match self.status() {
            Some(status) if status != StatusCode::PROXY_AUTHENTICATION_REQUIRED => Sent::Answered,
            Some(_) | None => self.kind().sent(),
        }
    }

    /// How it is retried: as its kind is, unless its words were cut.
    pub(crate) fn advice(&self) -> Advice {
        if self.kind() == Kind::Unauthorized && self.facts().body.cut {
            return Advice::Never;
        }
        self.kind().advice()
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
