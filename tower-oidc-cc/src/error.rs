//! The errors of the layer and of its settings, each with the next step.

use std::fmt;

pub use self::token::TokenError;
pub(crate) use self::token::{Kind, place};
use crate::judge::Rejection;

mod token;

/// The error of a call: no token, a refused token, or a failure of the inner service.
///
/// The enum is exhaustive, because a [`BearerAuth`](crate::BearerAuth) service fails in no other
/// way. The error of the inner service needs no downcast.
///
/// `?` and `Into` convert it into a `Box<dyn Error + Send + Sync>`, even if the inner error is such a
/// box (as with `Buffer`, `LoadShed` or `Timeout`). So this type does not implement
/// [`std::error::Error`], which would rule that conversion out.
///
/// # Errors
///
/// | error or response | next step |
/// |---|---|
/// | [`TokenError::is_transient`](crate::TokenError::is_transient) | nothing was sent: call again after [`TokenError::retry_after`](crate::TokenError::retry_after) |
/// | [`TokenError::oauth_error`](crate::TokenError::oauth_error) | correct the client id, the secret or the client's settings; a [`Provider`](crate::Provider) is called before each token request |
/// | [`TokenError::is_missing_credentials`](crate::TokenError::is_missing_credentials) | correct the file, the variable or the vault that the text names |
/// | [`TokenError::is_foreign_origin`](crate::TokenError::is_foreign_origin) | list the origin, send the request without the layer, or see [`BearerAuthLayer::for_origin`](crate::BearerAuthLayer::for_origin) |
/// | [`Error::Inner`] | handle it as an error of the HTTP client |
/// | [`Error::Refused`], or a response with a [`Rejection`] | read the `Display` of the rejection; call again once if [`Rejection::is_worth_a_resend`] |
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
///         Error::Refused(_, rejection) => rejection.is_worth_a_resend(),
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
    /// The inner service failed.
    Inner(E),
    /// The inner service failed because the remote service refused the call. The [`Rejection`] has
    /// the reason.
    Refused(E, Rejection),
}

/// The fault of credentials, an endpoint or an origin, and its correction.
///
/// It never repeats the value, which may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(&'static str);

// === impl Error ===

impl<E> From<TokenError> for Error<E> {
    fn from(error: TokenError) -> Self {
        Self::Token(error)
    }
}

/// Transparent: the text of the error inside.
impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(error) => error.fmt(f),
            Self::Inner(error) | Self::Refused(error, _) => error.fmt(f),
        }
    }
}

/// The error inside, boxed.
impl<E: Into<Self>> From<Error<E>> for Box<dyn std::error::Error + Send + Sync> {
    fn from(error: Error<E>) -> Self {
        match error {
            Error::Token(error) => error.into(),
            Error::Inner(error) | Error::Refused(error, _) => error.into(),
        }
    }
}

/// The error inside, boxed: for a `main` that returns it.
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
