//! The errors of the layer and of its settings, and the cause of a refused call, each with the next step.

use std::{borrow::Cow, fmt, time::Duration};

use tower_tds_outcome::{Cause, Outcome, Resend, Secrets};

pub(crate) use self::token::ErrorKind;
pub use self::token::TokenError;

mod token;

/// Error of a call: no token, a refused token, or a failure of the service below.
///
/// | error or response | next step |
/// |---|---|
/// | [`token`](Self::token), and it [is transient](TokenError::is_transient) | nothing was sent: call again after [`TokenError::retry_after`] |
/// | [`token`](Self::token) with an [OAuth error](TokenError::oauth_error) | correct the client id, the secret or the client's settings; a [`CredentialsProvider`](crate::CredentialsProvider) is called before each token request |
/// | [`token`](Self::token), for any other reason | read its text, which ends with the next step |
/// | neither, and [`Outcome::of_error`] is `TokenRefused` or `RoleMissing` | read its `Display`; call again once if the [`Cause`] in its chain [allows it](Cause::resend) |
/// | any other | handle the [source](std::error::Error::source), which is the error of the service below |
///
/// If the service below returns a refused call as a response, that [`Cause`] is in its extensions, and its
/// [`next`](Cause::next) is your next step. A [`resend`](Cause::resend) is `Free` if there is another token, or one was
/// requested: even if that request failed, the refusal may have been a single error of the service. It is `Paid` if the
/// service refuses tokens that it has never accepted, because its clock may be behind, and can help after
/// [`wait`](Cause::wait).
///
/// # Examples
///
/// ```
/// use tower_oidc_cc::{Cause, Error, Resend};
///
/// fn is_worth_a_retry(error: &Error) -> bool {
///     match error.token() {
///         Some(token) => token.is_transient(),
///         None => Cause::of(error).is_some_and(|cause| cause.resend == Some(Resend::Free)),
///     }
/// }
/// ```
pub struct Error(Box<Repr>);

enum Repr {
    /// There was no token for the request, which was not sent.
    Token(TokenError),
    /// The service below failed.
    Below(BoxError),
    /// The service below failed because the remote service refused the call. With the next step, which the layers above
    /// know better.
    Refused(Cause, Cow<'static, str>),
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
        Self(Box::new(Repr::Below(error.into())))
    }

    pub(crate) fn refused(error: BoxError, mut cause: Cause) -> Self {
        let next = cause.next.take().unwrap_or_default();
        Self(Box::new(Repr::Refused(cause.over(error), next)))
    }

    /// Returns why there was no token for the request, which was **not** sent.
    #[must_use]
    pub fn token(&self) -> Option<&TokenError> {
        match &*self.0 {
            Repr::Token(error) => Some(error),
            Repr::Below(_) | Repr::Refused(..) => None,
        }
    }
}

impl From<TokenError> for Error {
    fn from(error: TokenError) -> Self {
        Self(Box::new(Repr::Token(error)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Repr::Token(error) => error.fmt(f),
            Repr::Below(_) => f.write_str("the service below the token layer failed"),
            Repr::Refused(_, next) => f.write_str(next),
        }
    }
}

/// Prints the line, and that of the error below, redacted: the `Debug` of an HTTP client may show the query of its URL.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Repr::Token(error) => fmt::Debug::fmt(error, f),
            Repr::Refused(..) => write!(f, "{self}"),
            Repr::Below(error) => {
                write!(f, "{self}: {}", Secrets::default().line(&error.to_string()))
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Repr::Token(error) => error.source(),
            Repr::Below(error) => Some(&**error),
            Repr::Refused(cause, _) => Some(cause),
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

/// Returns the cause of a refused call. `is_untried` if the service has never accepted its token.
pub(crate) fn refusal(outcome: Outcome, refresh: Refresh, is_untried: bool) -> Cause {
    let has_other = matches!(refresh, Refresh::Requested | Refresh::Replaced);
    let mut cause = Cause::new(outcome);
    cause.wait = match refresh {
        Refresh::After(wait) => Some(wait),
        _ => (has_other && is_untried).then_some(Duration::ZERO),
    };
    cause.resend = match has_other {
        true => Some(Resend::Free),
        // The clock of the service is behind, as in an outage.
        false => cause.wait.map(|_| Resend::Paid),
    };
    cause.waited_for = has_other.then(|| "another token".into());
    let next = match (outcome, refresh) {
        (Outcome::NoHeader, _) => {
            "the service received no Authorization header, although one was sent: look for a layer \
             below the token layer, a redirect or a proxy that removes it"
        }
        (_, Refresh::Replaced) => {
            "the service refused the token, and another one is in use: call again"
        }
        (Outcome::RoleMissing, _) => {
            "the token lacks a role that this call needs: ask an administrator for it; tokens \
             issued from then on carry it"
        }
        (_, Refresh::Requested) => {
            "the service refused the token, and no newer one has come yet: call again once"
        }
        (_, Refresh::After(_)) => {
            "the service refused tokens that it has not accepted yet: call again in a few seconds; if this persists, \
             check the service's clock, and that it trusts this authorization server"
        }
        (_, Refresh::None) => {
            "the service refused the token, and no new one is requested now: if this persists, \
             check the service's clock, and that it trusts this authorization server"
        }
    };
    cause.next = Some(next.into());
    cause
}
