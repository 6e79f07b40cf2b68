//! The one error of this layer's own making.

use std::{fmt, sync::Arc, time::Duration};

pub(crate) use self::kind::Kind;

mod kind;

/// Says why there is no token to send, and what to do next.
///
/// Whenever a call ends with this error, its request was **never sent** to the service below:
/// sending it again cannot do anything twice. The error is one word wide and cheap to clone,
/// since all the calls that waited for one token request share its outcome.
#[derive(Clone)]
pub struct TokenError(Arc<Repr>);

struct Repr {
    kind: Kind,
    retry_after: Option<Duration>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

// === impl TokenError ===

impl TokenError {
    pub(crate) fn new(kind: Kind) -> Self {
        Self(Arc::new(Repr {
            kind,
            retry_after: None,
            source: None,
        }))
    }

    pub(crate) fn with_source(
        kind: Kind,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(Repr {
            kind,
            retry_after: None,
            source: Some(source.into().into()),
        }))
    }

    /// The same error, handed out at another moment.
    pub(crate) fn with_retry_after(&self, retry_after: Duration) -> Self {
        Self(Arc::new(Repr {
            kind: self.0.kind,
            retry_after: Some(retry_after),
            source: self.0.source.clone(),
        }))
    }

    /// Whether asking again, after [`retry_after`](Self::retry_after), may help with nothing
    /// changed by anyone: the endpoint is down, slow or broken, or the token expired just now.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.0.kind.is_transient()
    }

    /// Whether the token endpoint refused the credentials or the grant: somebody has to correct
    /// the client id, the secret, or the client's settings at the server.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        matches!(self.0.kind, Kind::Rejected(..))
    }

    /// Whether the [`Provider`](crate::Provider) had no credentials; nothing was asked.
    ///
    /// [`source`](std::error::Error::source) says why. It is tried again at once when there are
    /// some.
    #[must_use]
    pub fn is_missing_credentials(&self) -> bool {
        matches!(self.0.kind, Kind::NoCredentials)
    }

    pub(crate) fn is_expired(&self) -> bool {
        matches!(self.0.kind, Kind::Expired)
    }

    /// Whether the server refused the key itself, so that another key may fare better.
    ///
    /// Keycloak says either code for either fault (26.5.0: wrong secret, unknown client).
    pub(crate) fn is_bad_key(&self) -> bool {
        matches!(
            self.0.kind,
            Kind::Rejected(_, "invalid_client" | "unauthorized_client")
        )
    }

    /// Whether other credentials may mend it.
    pub(crate) fn is_about_credentials(&self) -> bool {
        self.is_bad_key() || self.is_missing_credentials()
    }

    /// Whether the [`TokenBudget`](crate::TokenBudget) of token requests is spent; nothing was asked.
    #[must_use]
    pub fn is_over_budget(&self) -> bool {
        matches!(self.0.kind, Kind::OverBudget)
    }

    /// Whether the token request took longer than its own timeout, or the HTTP client longer to be
    /// ready for it.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.0.kind, Kind::Timeout | Kind::NotReady)
    }

    /// Whether the request came with an `Authorization` header, which
    /// [`Existing::Refuse`](crate::Existing::Refuse) refuses.
    #[must_use]
    pub fn is_already_authorized(&self) -> bool {
        matches!(self.0.kind, Kind::AlreadyAuthorized)
    }

    /// Whether the request was meant for an origin that is not on the layer's list.
    #[must_use]
    pub fn is_foreign_origin(&self) -> bool {
        matches!(self.0.kind, Kind::ForeignOrigin)
    }

    /// How long the token endpoint is left alone: a call made earlier gets this error again.
    ///
    /// Zero means at once. It counts from the moment this error was handed out.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if self.0.kind == Kind::Expired {
            return Some(Duration::ZERO);
        }
        self.0.retry_after
    }

    /// The `error` code of a refusal, such as `invalid_client` (RFC 6749, section 5.2).
    ///
    /// Codes that no standard names are not repeated.
    #[must_use]
    pub fn oauth_error(&self) -> Option<&'static str> {
        if let Kind::Rejected(_, code) = self.0.kind {
            return Some(code);
        }
        None
    }
}

/// The text is of a kind and a number: nothing that a server wrote is ever printed.
impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.kind.fmt(f)?;
        match self.0.retry_after {
            Some(wait) => write!(f, " (not asked again for {:.1} s)", wait.as_secs_f64()),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenError")
            .field("kind", &self.0.kind)
            .field("retry_after", &self.0.retry_after)
            .field("source", &self.0.source)
            .finish()
    }
}

impl std::error::Error for TokenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}
