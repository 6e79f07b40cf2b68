//! The one error of this layer's own making.

use std::{fmt, sync::Arc, time::Duration};

use http::StatusCode;

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

/// The text of a kind is fixed or a number: nothing that a server wrote is ever printed, since a
/// server may echo the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The HTTP client failed.
    Transport,
    /// The token request's own timeout passed.
    Timeout,
    /// The endpoint answered that it cannot answer now.
    Unavailable(StatusCode),
    /// The endpoint refused the credentials or the grant, with an OAuth error code.
    Rejected(StatusCode, &'static str),
    /// The endpoint wants the request elsewhere; credentials do not follow redirects.
    Redirected(StatusCode),
    /// The reply is no token reply, or a broken one; the next may be whole.
    Malformed(&'static str),
    /// The reply is whole, but its token cannot be sent as a bearer token.
    Unusable(&'static str),
    /// The provider has no credentials.
    NoCredentials,
    /// The caller's own bound on token requests is reached.
    OverBudget,
    /// The private key made no signature, though it did when it was taken.
    #[cfg(feature = "private-key-jwt")]
    Unsigned,
    /// The token expired, or was found dead, between `poll_ready` and `call`.
    Expired,
    /// The request goes to an origin that may not see the token.
    ForeignOrigin,
    /// The request came with an Authorization header of its own.
    AlreadyAuthorized,
    /// There is no tokio runtime to ask for a token on.
    NoRuntime,
    /// The runtime that asked went away, twice.
    Vanished,
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
        match self.0.kind {
            Kind::Transport
            | Kind::Timeout
            | Kind::Unavailable(_)
            | Kind::Malformed(_)
            | Kind::OverBudget
            | Kind::Expired
            | Kind::Vanished => true,
            Kind::Rejected(..)
            | Kind::Redirected(_)
            | Kind::Unusable(_)
            | Kind::NoCredentials
            | Kind::ForeignOrigin
            | Kind::AlreadyAuthorized
            | Kind::NoRuntime => false,
            #[cfg(feature = "private-key-jwt")]
            Kind::Unsigned => false,
        }
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

    /// Whether the [`Budget`](crate::Budget) of token requests is spent; nothing was asked.
    #[must_use]
    pub fn is_over_budget(&self) -> bool {
        matches!(self.0.kind, Kind::OverBudget)
    }

    /// Whether the token request took longer than its own timeout.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.0.kind, Kind::Timeout)
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

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.kind {
            Kind::Transport => f.write_str(
                "the token endpoint cannot be reached: check its address and the network",
            ),
            Kind::Timeout => f.write_str(
                "the token endpoint did not answer in time: try later, or allow a longer timeout",
            ),
            Kind::Unavailable(status) => write!(
                f,
                "the token endpoint cannot answer now (status {}): try later",
                status.as_u16()
            ),
            Kind::Rejected(status, code) => write!(
                f,
                "the token endpoint refused the credentials or the grant (status {}, {code}): \
                 check the client id, the secret and the client's settings at the server",
                status.as_u16()
            ),
            Kind::Redirected(status) => write!(
                f,
                "the token endpoint answered with a redirect (status {}), which credentials do \
                 not follow: configure the final address",
                status.as_u16()
            ),
            Kind::Malformed(what) => write!(
                f,
                "the token endpoint's reply is no token reply ({what}): try later, and check \
                 that the address is a token endpoint's"
            ),
            Kind::Unusable(what) => write!(
                f,
                "the token endpoint's token cannot be sent as a bearer token ({what}): check the \
                 client's settings at the server"
            ),
            Kind::NoCredentials => f.write_str(
                "there are no credentials to ask for a token with: see the source of this error",
            ),
            Kind::OverBudget => f.write_str(
                "no token request is left in the budget: try later, find out what spends them, or \
                 allow more",
            ),
            #[cfg(feature = "private-key-jwt")]
            Kind::Unsigned => f.write_str(
                "the client's private key made no signature; nothing was sent: check the key",
            ),
            Kind::Expired => f.write_str(
                "the token expired between readiness and call; nothing was sent: call again",
            ),
            Kind::ForeignOrigin => f.write_str(
                "the request goes to an origin that may not see the token: add the origin to the \
                 layer's list, or send the request without the layer",
            ),
            Kind::AlreadyAuthorized => f.write_str(
                "the request has an Authorization header already, and the layer was told to \
                 refuse it: remove it, or send the request without the layer",
            ),
            Kind::NoRuntime => {
                f.write_str("no tokio runtime to ask for a token on: poll the service inside one")
            }
            Kind::Vanished => f.write_str(
                "the runtime that asked for a token is gone: call again on a running one",
            ),
        }?;
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
