//! The error of a call without a token, with the cause, the URL and the next step.

use std::{borrow::Cow, error::Error, fmt, sync::Arc, time::Duration};

use http::{Method, StatusCode, Uri};
use tower_tds_outcome::{Cause, Outcome, Resend, Secrets, chain, place};

/// Error of a call that has no token to send, with the reason and the next step.
///
/// Retrying is safe: a call that ends with this error was **never sent** to the inner service. The error is one word
/// wide and cheap to clone, because all calls that wait for one token request share its outcome.
///
/// `Display` is one line: the failure, the URL, the root cause, and your next step.
/// Words of a token endpoint are redacted and cut. `Debug` adds a second line for programmers.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_oidc_cc::TokenError;
///
/// /// When to ask again, if that may help without a change of the settings.
/// fn again_after(error: &TokenError) -> Option<Duration> {
///     // A code such as `invalid_client` names the setting to correct.
///     let is_worth_it = error.is_transient() && error.oauth_error().is_none();
///     is_worth_it.then(|| error.retry_after().unwrap_or_default())
/// }
/// ```
#[derive(Clone)]
pub struct TokenError(Arc<Repr>);

#[derive(Clone)]
struct Repr {
    kind: ErrorKind,
    /// Text of the cause at the root, or the words of the server.
    words: Option<String>,
    /// Digest of the credentials that the server refused.
    digest: Option<u16>,
    /// Shows the layers above that the call was not sent, and what to do.
    cause: Cause,
}

/// Kind of a token error, by what its reader does next. Texts are fixed: a server's own may echo the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// There was no answer: the HTTP client failed or panicked.
    Transport,
    /// There was no answer in time.
    Late,
    /// The endpoint responded with some other status: it may be busy, starting, or elsewhere.
    Unavailable(StatusCode),
    /// The endpoint refused the credentials or the grant.
    Rejected(StatusCode),
    /// A redirect. Credentials are not sent to another address.
    Redirected(StatusCode),
    /// Malformed reply; the next one may be well-formed.
    Malformed(&'static str),
    /// Well-formed reply, but its token cannot be sent as a bearer token.
    Unusable(&'static str),
    /// The provider has no credentials.
    NoCredentials,
    /// There was no token at the time of the call, although one may come.
    Unready,
    /// The request may not carry the token; what is wrong, and the next step.
    Foreign(&'static str, &'static str),
}

// === impl TokenError ===

impl TokenError {
    pub(crate) fn new(kind: ErrorKind) -> Self {
        let (is_transient, next) = kind.remedy();
        let mut cause = Cause::new(match kind {
            ErrorKind::Foreign(..) => Outcome::AddressNotAllowed,
            // Perhaps the credentials have not been written yet.
            ErrorKind::NoCredentials => Outcome::NoToken,
            _ if is_transient => Outcome::NoToken,
            _ => Outcome::TokenDenied,
        });
        cause.next = Some(next.into());
        // The endpoint is there and will recover, so a call need not count its attempts.
        cause.resend = kind.is_busy().then_some(Resend::Free);
        Self(Arc::new(Repr {
            kind,
            words: None,
            digest: None,
            cause,
        }))
    }

    /// Creates the error for a failure of the HTTP client.
    pub(crate) fn with_source(
        kind: ErrorKind,
        source: impl Into<Box<dyn Error + Send + Sync>>,
        secrets: &Secrets,
    ) -> Self {
        let source = source.into();
        let said = Cause::of(&*source);
        let is_late = said.is_some_and(|it| it.outcome == Outcome::Lost && it.waited_for.is_some());
        Self::new(kind)
            .because(root(&*source, secrets))
            .with(|repr| {
                repr.cause = repr.cause.clone().over(source);
                repr.cause.resend = repr.cause.resend.or(is_late.then_some(Resend::Free));
                repr.cause.secrets = Some(secrets.clone());
            })
    }

    /// Returns the error of a provider. Only its redacted text is kept, because the error itself may
    /// contain a secret, which your log would print.
    pub(crate) fn no_credentials(error: &(dyn Error + 'static), secrets: &Secrets) -> Self {
        Self::new(ErrorKind::NoCredentials).because(root(error, secrets))
    }

    /// Returns the same error with its cause, or with the words of the server. It shows no secret.
    pub(crate) fn because(&self, cause: impl Into<String>) -> Self {
        self.with(|repr| repr.words = Some(cause.into()))
    }

    /// Returns the same error, for credentials with this digest.
    pub(crate) fn for_credentials(&self, digest: u16) -> Self {
        self.with(|repr| repr.digest = self.is_refusal().then_some(digest))
    }

    /// Whether the endpoint refused the credentials or the grant.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Rejected(_))
    }

    /// Whether there may be a token soon: after a transient failure, or once a provider has credentials.
    pub(crate) fn is_brief(&self) -> bool {
        self.0.cause.outcome == Outcome::NoToken
    }

    /// Returns the digest of the credentials that were refused.
    pub(crate) fn refused(&self) -> Option<u16> {
        self.0.digest
    }

    /// Returns the status of the endpoint, whether it refused the credentials, and its words.
    pub(crate) fn said(&self) -> Option<(StatusCode, bool, Option<&str>)> {
        match self.0.kind {
            ErrorKind::Unavailable(status) | ErrorKind::Rejected(status) => {
                Some((status, self.is_refusal(), self.0.words.as_deref()))
            }
            _ => None,
        }
    }

    /// Returns the same error, with the address of its request unless it has one.
    pub(crate) fn at(&self, uri: &Uri) -> Self {
        self.with(|repr| {
            let request = &mut repr.cause.request;
            request.get_or_insert_with(|| (Method::POST, place(uri).into()));
        })
    }

    /// Returns the same error, with the remaining backoff.
    pub(crate) fn with_retry_after(&self, retry_after: Duration) -> Self {
        self.with(|repr| repr.cause.wait = Some(retry_after))
    }

    fn with(&self, change: impl FnOnce(&mut Repr)) -> Self {
        let mut repr = Repr::clone(&self.0);
        change(&mut repr);
        Self(Arc::new(repr))
    }

    /// Whether a retry after [`retry_after`](Self::retry_after) can help without a change.
    ///
    /// It can if the endpoint is down, slow or broken, if the token expired just now, if you called
    /// the layer before it was ready, or if a panic stopped the token request.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.0.kind.remedy().0
    }

    /// Returns the time until the end of the backoff. If you call before that, you get this error
    /// again.
    ///
    /// The time counts from the `poll_ready` before the call.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let is_local = self.0.kind == ErrorKind::Unready;
        self.0.cause.wait.or(is_local.then_some(Duration::ZERO))
    }

    /// Returns the `error` code with which the token endpoint refused the credentials or the grant,
    /// such as `invalid_client` (RFC 6749, section 5.2); `None` if it gave no words.
    ///
    /// Correct the client id, the secret, or the client's settings at the server.
    #[must_use]
    pub fn oauth_error(&self) -> Option<&str> {
        let words = self.0.words.as_deref().filter(|_| self.is_refusal())?;
        let code = words.split(": ").next()?;
        // A page or a sentence in place of JSON has no code.
        let is_code = code
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b == b'_' || b == b'-');
        is_code.then_some(code)
    }
}

impl From<ErrorKind> for TokenError {
    fn from(kind: ErrorKind) -> Self {
        Self::new(kind)
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr {
            kind, words, cause, ..
        } = &*self.0;
        let place = cause.request.as_ref().map(|(_, place)| &**place);
        let is_document = place.is_some_and(|place| place.contains("/.well-known/"));
        f.write_str(&kind.text(if is_document { DOCUMENT } else { ENDPOINT }))?;
        if let Some(place) = place {
            write!(f, " ({place})")?;
        }
        if let Some(words) = words {
            write!(f, ": {words}")?;
        }
        if let Some(wait) = cause.wait {
            write!(f, "; next attempt in {:.1} s", wait.as_secs_f64())?;
        }
        write!(f, "; {}", kind.remedy().1)
    }
}

/// Prints two lines. The first one is that of `Display`.
impl fmt::Debug for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, retry_after) = (self.0.kind, self.0.cause.wait);
        write!(
            f,
            "{self}\nTokenError {{ kind: {kind:?}, retry_after: {retry_after:?} }}"
        )
    }
}

impl Error for TokenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0.cause)
    }
}

// === impl ErrorKind ===

impl ErrorKind {
    /// Returns the failure, without its next step. The subject is the token endpoint or the discovery
    /// document.
    fn text(self, subject: &str) -> Cow<'static, str> {
        match self {
            Self::Transport => format!("{subject} cannot be reached").into(),
            Self::Late => format!("{subject} did not answer in time").into(),
            Self::Unavailable(status) => format!("{subject} answered {status}").into(),
            Self::Rejected(status) => format!("{subject} refused the request: {status}").into(),
            Self::Redirected(status) => {
                format!("{subject} answered with a redirect, which is not followed: {status}")
                    .into()
            }
            Self::Malformed(what) => format!("the reply of {subject} is malformed: {what}").into(),
            Self::Unusable(what) => {
                format!("the token of {subject} cannot be sent as a bearer token: {what}").into()
            }
            Self::NoCredentials => "there are no credentials for a token request".into(),
            Self::Unready => UNREADY.into(),
            Self::Foreign(what, _) => what.into(),
        }
    }

    /// Whether the endpoint answered that it is busy or failing, or did not answer in time.
    fn is_busy(self) -> bool {
        match self {
            Self::Late => true,
            Self::Unavailable(status) => status.is_server_error() || status.as_u16() == 429,
            _ => false,
        }
    }

    /// Whether a retry may help without any change, and the next step.
    fn remedy(self) -> (bool, &'static str) {
        match self {
            Self::Transport => (true, "check the address, its certificate and the network"),
            // A wrong path is more likely than an outage, but the error is still transient, because a
            // server that is being deployed returns such a status for a while.
            Self::Unavailable(status) if status.is_client_error() && status.as_u16() != 429 => {
                (true, "check address and realm, or try later")
            }
            Self::Unavailable(_) => (true, "try later"),
            Self::Late => (true, "try later, or allow a longer timeout"),
            Self::Rejected(_) => (
                false,
                "check the client id, the secret, the fields of the form, and that this is the token endpoint",
            ),
            Self::Redirected(_) => (false, "configure the final address"),
            Self::Malformed(_) => (true, "try later, and check the address"),
            Self::Unusable(_) => (false, "set the client to bearer tokens at the server"),
            Self::NoCredentials => (false, "correct the source of the credentials"),
            Self::Unready => (
                true,
                "call it by `oneshot`, or await `ready` before each call, also on a clone",
            ),
            Self::Foreign(_, next) => (false, next),
        }
    }
}

/// Returns the text of the cause at the root, on one line and without secrets.
fn root(error: &(dyn Error + 'static), secrets: &Secrets) -> String {
    let root = chain(error).filter(|link| !link.is::<Cause>()).last();
    secrets.line(&root.unwrap_or(error).to_string())
}

const ENDPOINT: &str = "the token endpoint";
const DOCUMENT: &str = "the discovery document";
const UNREADY: &str = "the token layer was called before it was ready, or its token has expired since; request not sent";
