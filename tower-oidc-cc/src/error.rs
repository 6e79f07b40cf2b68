//! The errors of the layer and of its settings, and the refusal of a call, each with the next step.

use std::{fmt, time::Duration};

use tower_tds_outcome::{Cause, Outcome, Resend, Secrets};

pub(crate) use self::token::Kind;
pub use self::token::TokenError;

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
pub struct Error(Box<Reason>);

enum Reason {
    /// There was no token for the request, which was not sent.
    Token(TokenError),
    /// The service below failed.
    Below(BoxError),
    /// The service below failed because the remote service refused the call.
    Refused(Cause, Rejection),
}

/// Shows why a call was refused, and whether a resend can help.
///
/// You find it in the extensions of a refused response, or in the [error](crate::Error::rejection) that
/// stands for one. `Display` is one line for a log, with your next step.
///
/// # Examples
///
/// ```
/// use http::Response;
/// use tower_oidc_cc::{Outcome, Rejection};
///
/// fn lacks_a_role<B>(response: &Response<B>) -> bool {
///     let rejection = response.extensions().get::<Rejection>();
///     rejection.is_some_and(|rejection| rejection.outcome() == Outcome::RoleMissing)
/// }
///
/// assert!(!lacks_a_role(&Response::new(())));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    outcome: Outcome,
    refresh: Refresh,
    /// Whether the service has never accepted the refused token.
    is_untried: bool,
}

/// The state of the refused token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refresh {
    /// It stays in use.
    None,
    /// It stays in use, is too young, and may be accepted after this time.
    After(Duration),
    /// A newer token was requested, and none has come.
    Requested,
    /// Another token is in use.
    Replaced,
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
        let mut cause = Cause::new(rejection.outcome());
        cause.wait = rejection.retry_after();
        cause.resend = match rejection.is_worth_a_resend() {
            true => Some(Resend::Free),
            // The clock of the service is behind, as in an outage.
            false => cause.wait.map(|_| Resend::Paid),
        };
        cause.waited_for = rejection
            .is_worth_a_resend()
            .then(|| "another token".into());
        Self(Box::new(Reason::Refused(cause.over(error), rejection)))
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

/// Prints the line, and that of the error below, redacted: the `Debug` of an HTTP client may show the query of its URL.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Reason::Token(error) => fmt::Debug::fmt(error, f),
            Reason::Refused(..) => write!(f, "{self}"),
            Reason::Below(error) => {
                write!(f, "{self}: {}", Secrets::default().line(&error.to_string()))
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Reason::Token(error) => error.source(),
            Reason::Below(error) => Some(&**error),
            Reason::Refused(cause, _) => Some(cause),
        }
    }
}

// === impl Rejection ===

impl Rejection {
    pub(crate) fn new(outcome: Outcome, refresh: Refresh, is_untried: bool) -> Self {
        Self {
            outcome,
            refresh,
            is_untried,
        }
    }

    /// Returns why the service refused the call.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether one resend can help: another token exists or was requested for this call.
    ///
    /// A resend can help even if that token request failed, because the refusal may have been a single error of the
    /// service.
    #[must_use]
    pub fn is_worth_a_resend(&self) -> bool {
        matches!(self.refresh, Refresh::Requested | Refresh::Replaced)
    }

    /// Returns the time after which a resend can help even if the call was sent again before.
    ///
    /// It is `Some` if the service has never accepted the refused token: zero if there is another token, and two seconds
    /// if the service refuses both and one is less than two minutes old, because its clock may be behind that of the
    /// authorization server. Once it has reached the time of issue, the token is valid.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.refresh {
            Refresh::After(wait) => Some(wait),
            Refresh::Requested | Refresh::Replaced if self.is_untried => Some(Duration::ZERO),
            _ => None,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.outcome, self.refresh) {
            (Outcome::TokenRefused, Refresh::Replaced) => {
                "the service refused the token, and another one is in use: call again"
            }
            (Outcome::TokenRefused, Refresh::Requested) => {
                "the service refused the token, and no newer one has come yet: call again once"
            }
            (Outcome::TokenRefused, Refresh::After(_)) => {
                "the service refused tokens that it has not accepted yet: call again in a few seconds; if this persists, \
                 check the service's clock, and that it trusts this authorization server"
            }
            (Outcome::TokenRefused, Refresh::None) => {
                "the service refused the token, and no new one is requested now: if this persists, \
                 check the service's clock, and that it trusts this authorization server"
            }
            (Outcome::RoleMissing, Refresh::Replaced) => {
                "the token lacks a role that this call needs, and a newer one is in use: call again"
            }
            (Outcome::RoleMissing, _) => {
                "the token lacks a role that this call needs: ask an administrator for it; tokens \
                 issued from then on carry it"
            }
            (Outcome::NoHeader, _) => {
                "the service received no Authorization header, although one was sent: look for a layer \
                 below the token layer, a redirect or a proxy that removes it"
            }
            _ => "the token was not refused",
        })
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
