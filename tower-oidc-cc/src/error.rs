//! The errors of the layer and of its settings, each with the next step.

use std::fmt;

pub use self::token::TokenError;
pub(crate) use self::token::{Kind, place};
use crate::rejection::Rejection;

mod token;

/// Error of a call: no token, a refused token, or a failure of the service below.
///
/// | error or response | next step |
/// |---|---|
/// | [`token`](Self::token), and it [is transient](TokenError::is_transient) | nothing was sent: call again after [`TokenError::retry_after`] |
/// | [`token`](Self::token) with an [OAuth error](TokenError::oauth_error) | correct the client id, the secret or the client's settings; a [`Provider`](crate::Provider) is called before each token request |
/// | [`token`](Self::token), and [credentials are missing](TokenError::is_missing_credentials) | correct the file, the variable or the vault that the text names |
/// | [`token`](Self::token), and the [origin is foreign](TokenError::is_foreign_origin) | list the origin, send the request without the layer, or see [`BearerAuthLayer::for_origin`](crate::BearerAuthLayer::for_origin) |
/// | [`token`](Self::token), for any other reason | read its [`advice`](TokenError::advice) |
/// | [`rejection`](Self::rejection), or a response with a [`Rejection`] | read its `Display`; call again once if it [is worth a resend](Rejection::is_worth_a_resend) |
/// | neither | handle the [source](std::error::Error::source), which is the error of the service below |
///
/// Layers above find the call's [`Outcome`](tower_tds_outcome::Outcome) in this error's chain of sources.
///
/// # Examples
///
/// ```
/// use tower_oidc_cc::Error;
///
/// fn is_worth_a_retry(error: &Error) -> bool {
///     match (error.token(), error.rejection()) {
///         (Some(token), _) => token.is_transient(),
///         (None, Some(rejection)) => rejection.is_worth_a_resend(),
///         (None, None) => false,
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Error(Box<Reason>);

#[derive(Debug)]
enum Reason {
    /// There was no token for the request, which was not sent.
    Token(TokenError),
    /// The service below failed.
    Below(BoxError),
    /// The service below failed because the remote service refused the call.
    Refused(BoxError, Rejection),
}

/// Boxed error, as tower's own layers return it.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Invalid credentials, endpoint or origin: what is wrong, and what to use instead.
///
/// Its text never repeats the invalid value, which may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(&'static str);

// === impl Error ===

impl Error {
    pub(crate) fn below(error: impl Into<BoxError>) -> Self {
        Self(Box::new(Reason::Below(error.into())))
    }

    pub(crate) fn refused(error: BoxError, rejection: Rejection) -> Self {
        Self(Box::new(Reason::Refused(error, rejection)))
    }

    /// Returns why there was no token for the request, which was **not** sent.
    #[must_use]
    pub fn token(&self) -> Option<&TokenError> {
        match &*self.0 {
            Reason::Token(error) => Some(error),
            Reason::Below(_) | Reason::Refused(..) => None,
        }
    }

    /// Returns why the remote service refused the call, if the error of the service below shows that.
    #[must_use]
    pub fn rejection(&self) -> Option<&Rejection> {
        match &*self.0 {
            Reason::Refused(_, rejection) => Some(rejection),
            Reason::Token(_) | Reason::Below(_) => None,
        }
    }

    /// Unwraps the error of the service below, or returns this one if there was no token.
    ///
    /// # Errors
    ///
    /// Returns this error itself if it has a [`token`](Self::token) error.
    pub fn into_source(self) -> Result<BoxError, Self> {
        match *self.0 {
            Reason::Below(error) | Reason::Refused(error, _) => Ok(error),
            reason @ Reason::Token(_) => Err(Self(Box::new(reason))),
        }
    }
}

impl From<TokenError> for Error {
    fn from(error: TokenError) -> Self {
        Self(Box::new(Reason::Token(error)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Reason::Token(error) => error.fmt(f),
            Reason::Below(_) => f.write_str("the service below the token layer failed"),
            Reason::Refused(_, rejection) => rejection.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Reason::Token(error) => error.source(),
            Reason::Below(error) | Reason::Refused(error, _) => Some(&**error),
        }
    }
}

// === impl ConfigError ===

impl ConfigError {
    pub(crate) const fn new(reason: &'static str) -> Self {
        Self(reason)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ConfigError {}
