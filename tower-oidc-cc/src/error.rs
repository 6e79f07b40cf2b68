//! The layer's errors, each with its caller's next move.

use std::fmt;

pub use self::token::TokenError;

pub(crate) mod token;

/// Says whether a call failed for want of a token or in the service below.
///
/// A [`BearerAuth`](crate::BearerAuth) service has these two ways to fail and no third, so the enum is
/// exhaustive: match on it, and the inner service's own error is there, with no downcast.
///
/// It becomes a `Box<dyn Error + Send + Sync>` wherever the inner error does, boxed errors among
/// them (`Buffer`, `LoadShed`, `Timeout`): `?` and `Into` box whichever of the two it is. For that
/// it is no [`std::error::Error`] itself, as a boxed error is none.
///
/// # Errors
///
/// | what you see | what it asks of you |
/// |---|---|
/// | [`TokenError::is_transient`](crate::TokenError::is_transient) | nothing was sent: call again after [`TokenError::retry_after`](crate::TokenError::retry_after); where its text says that time was short, allow more by [`TokenSourceBuilder::timeout`](crate::TokenSourceBuilder::timeout) or [`readiness`](crate::TokenSourceBuilder::readiness) |
/// | [`TokenError::is_rejected`](crate::TokenError::is_rejected) | correct the client id, the secret or the client's settings; a [`Provider`](crate::Provider) is asked anew before the next token request |
/// | [`TokenError::is_missing_credentials`](crate::TokenError::is_missing_credentials) | set right the file, the variable or the vault that its text names |
/// | [`TokenError::is_over_budget`](crate::TokenError::is_over_budget) | wait; find out what spends the requests; allow more |
/// | [`TokenError::is_foreign_origin`](crate::TokenError::is_foreign_origin) | list the origin, send the request without the layer, or see [`BearerAuthLayer::for_origin`](crate::BearerAuthLayer::for_origin) |
/// | [`Error::Inner`] | it is your HTTP client's own |
/// | a 401 with [`Judgement::DeadToken`](crate::Judgement::DeadToken) | call again if [`Rejection::is_replaced`](crate::Rejection::is_replaced) |
/// | a 401 or 403 with [`Judgement::MissingRole`](crate::Judgement::MissingRole) | ask an administrator for the role; no retry can help |
/// | a 401 with [`Judgement::NoHeader`](crate::Judgement::NoHeader) | look for a layer below, a redirect or a proxy that drops the header |
/// | a 401 with [`Judgement::Unexplained`](crate::Judgement::Unexplained), or without a [`Rejection`](crate::Rejection) | treat it as an outage |
///
/// # Examples
///
/// ```
/// use tower_oidc_cc::Error;
///
/// fn is_worth_a_retry(error: &Error<std::io::Error>) -> bool {
///     match error {
///         Error::Token(token) => token.is_transient(),
///         Error::Inner(io) => io.kind() == std::io::ErrorKind::TimedOut,
///     }
/// }
///
/// let error = Error::Inner(std::io::Error::from(std::io::ErrorKind::TimedOut));
/// assert!(is_worth_a_retry(&error));
/// ```
#[derive(Debug, Clone)]
pub enum Error<E> {
    /// There was no token for this request, and it was **not** sent.
    Token(TokenError),
    /// The service below failed; this is its error, untouched.
    Inner(E),
}

/// Says why credentials, an endpoint or an origin were refused, and what to put instead.
///
/// It never repeats the value it refuses, which may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(&'static str);

// === impl Error ===

impl<E> From<TokenError> for Error<E> {
    fn from(error: TokenError) -> Self {
        Self::Token(error)
    }
}

/// Transparent: it prints what the error inside prints.
impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(error) => error.fmt(f),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

/// Whichever it is, boxed.
impl<E: Into<Self>> From<Error<E>> for Box<dyn std::error::Error + Send + Sync> {
    fn from(error: Error<E>) -> Self {
        match error {
            Error::Token(error) => error.into(),
            Error::Inner(error) => error.into(),
        }
    }
}

/// Whichever it is, boxed: for a `main` that returns it.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<Error<E>>
    for Box<dyn std::error::Error>
{
    fn from(error: Error<E>) -> Self {
        Box::<dyn std::error::Error + Send + Sync>::from(error)
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
