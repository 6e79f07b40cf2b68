//! The error of a failed call: one pointer to its facts.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use tower::BoxError;
use tower_tds_outcome::{Cause, Outcome, Resend, Sent, chain, place};

use crate::kind::{Advice, GiveUp, Kind, SILENCE};

mod display;
mod transport;

/// A failed request: what went wrong, whether to try again, and when.
///
/// [`Display`](std::fmt::Display) is one line of at most 400 characters: the URL that failed, what
/// happened, why, and what to do next. `{:#}` adds the chain of causes, and `Debug` adds the kind,
/// the status and the number of attempts. None of these texts contains a token, a secret or the
/// query of the call's URL.
///
/// Wrap the errors of your own layers with [`new`](Self::new), or make them of a [`Cause`], so that the retry layer
/// treats them like its own.
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
///     "no permit in time: waited 5 s for one of 60 permits; \
///      send fewer requests at once, or allow a longer wait",
/// );
/// ```
pub struct Error(Box<Facts>);

/// Facts of a failure.
#[derive(Clone)]
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    /// Read by the layers above. Its source is the next link of the chain.
    pub(crate) cause: Cause,
    pub(crate) response: Option<Arc<ErrorResponse>>,
    pub(crate) attempts: u32,
    pub(crate) elapsed: Option<Duration>,
    pub(crate) gave_up: Option<GiveUp>,
    /// Bytes received, and bytes announced, of a success whose body ended early.
    pub(crate) received: Option<(u64, Option<u64>)>,
}

/// Response of the service. Clones of an error share it.
#[derive(Clone)]
pub(crate) struct ErrorResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// As much of the body as was read.
    pub(crate) body: Bytes,
    pub(crate) is_cut: bool,
    /// Message in the body or the challenge, without secrets.
    pub(crate) message: Option<Box<str>>,
    pub(crate) request_id: Option<Box<str>>,
    /// Where a redirect leads, redacted.
    pub(crate) location: Option<Box<str>>,
}

// === impl Error ===

impl Error {
    /// Creates an error of `kind`, caused by `source`.
    ///
    /// If `source` wraps an error of this type, the new error keeps its status, hint, attempts and
    /// [`sent`](Self::sent). Otherwise `kind` decides: with [`Kind::Connect`], for example, nothing was sent.
    #[must_use]
    pub fn new(kind: Kind, source: impl Into<BoxError>) -> Self {
        let source = source.into();
        let mut facts = match find::<Self>(&*source) {
            Some(known) => known.facts().clone(),
            None => Facts::new(kind),
        };
        facts.set_kind(kind);
        Self::build(facts, Some(source))
    }

    /// Reads the chain of an error: what an error of this type or a [`Cause`] says about it, or else the types of the
    /// HTTP client.
    fn read(source: BoxError) -> Self {
        let outer = Cause::of(&*source);
        let known = chain(&*source).find_map(|link| match link.downcast_ref::<Self>() {
            Some(error) => Some(error.facts().clone()),
            None => link.downcast_ref().and_then(Facts::of_own),
        });
        let mut facts = known.unwrap_or_else(|| match (transport::kind(&*source), outer) {
            ((Kind::Unrecognized, _), Some(cause)) => Facts::of(cause),
            ((kind, sent), _) => {
                let mut facts = Facts::new(kind);
                facts.cause.sent = sent;
                facts.settle();
                facts
            }
        });
        // Whatever the token layer did about a 401, this one was not about the token.
        let is_moot = |outer: &Cause| {
            let is_about_token = matches!(facts.kind, Kind::InvalidToken | Kind::MissingRole);
            matches!(outer.outcome, Outcome::TokenRefused | Outcome::RoleMissing) && !is_about_token
        };
        if let Some(outer) = outer.filter(|outer| !is_moot(outer)) {
            facts.add(outer);
        }
        facts.gave_up = facts.gave_up.or(match facts.cause.resend {
            Some(Resend::Forbidden) => Some(GiveUp::Forbidden),
            Some(Resend::TooLate) => Some(GiveUp::Deadline),
            _ => None,
        });
        Self::build(facts, Some(source))
    }

    /// Sets the request that failed, for example if it is not the caller's.
    #[must_use]
    pub fn with_request(mut self, method: Method, uri: &Uri) -> Self {
        let facts = self.facts_mut();
        facts.cause.request = None;
        facts.note_request(&method, uri);
        self
    }

    /// Sets the advice for what to do next, in place of the kind's own.
    #[must_use]
    pub fn with_advice(mut self, next: &'static str) -> Self {
        self.facts_mut().cause.next = Some(next.into());
        self
    }

    /// Sets whether the request was sent, if the kind alone does not decide it.
    #[must_use]
    pub fn with_sent(mut self, sent: Sent) -> Self {
        self.facts_mut().cause.sent = sent;
        self.facts_mut().settle();
        self
    }

    /// Sets the number of body bytes received from a success that ended early, and its announced
    /// length.
    #[must_use]
    pub fn with_received(mut self, received: u64, expected: Option<u64>) -> Self {
        self.facts_mut().received = Some((received, expected));
        self
    }

    /// Sets why there is no further attempt, so that a retry layer makes none.
    ///
    /// Use [`GiveUp::Forbidden`] in a layer that can foresee that the next attempt fails in the
    /// same way, for example because it would carry the same token.
    pub fn set_gave_up(&mut self, reason: GiveUp) {
        self.facts_mut().gave_up = Some(reason);
    }

    /// Changes the kind, and with it the text and the retry rule. [`sent`](Self::sent) does not
    /// change.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{Request, Response, StatusCode};
    /// use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};
    /// use tower_tds_errors::{ClassifyLayer, Error, Kind, RetryLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let client = service_fn(async |_: Request<String>| {
    ///     let mut response = Response::new(String::from("no Route matched"));
    ///     *response.status_mut() = StatusCode::NOT_FOUND;
    ///     Ok::<_, BoxError>(response)
    /// });
    /// let stack = ServiceBuilder::new()
    ///     .layer(RetryLayer::new())
    ///     // This service returns 404 while it is being deployed.
    ///     .map_err(|mut error: Error| {
    ///         if error.message().is_some_and(|text| text.starts_with("no Route")) {
    ///             error.set_kind(Kind::Unavailable);
    ///         }
    ///         error
    ///     })
    ///     .layer(ClassifyLayer::new())
    ///     .service(client);
    /// let error = stack.oneshot(Request::new(String::new())).await.unwrap_err();
    /// assert_eq!((error.kind(), error.attempts()), (Kind::Unavailable, 3));
    /// # }
    /// ```
    pub fn set_kind(&mut self, kind: Kind) {
        self.facts_mut().set_kind(kind);
    }

    /// Returns the kind of the failure.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.facts().kind
    }

    /// Whether a retry of the same request may succeed.
    ///
    /// This stays true when the attempts are used up (see [`gave_up`](Self::gave_up)), and is false
    /// if a layer forbids a retry.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.advice() != Advice::Never && self.gave_up() != Some(GiveUp::Forbidden)
    }

    /// Whether all other calls of your job will fail for the same reason, so that you can stop it.
    ///
    /// Returns true for a quota that is used up for longer than a minute, for wrong credentials,
    /// and for a failed TLS handshake.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_tds_errors::{Error, Kind};
    ///
    /// assert!(Error::new(Kind::TokenRefused, "invalid_client").ends_the_job());
    /// assert!(!Error::new(Kind::NotFound, "no such file").ends_the_job());
    /// ```
    #[must_use]
    pub fn ends_the_job(&self) -> bool {
        matches!(
            self.kind(),
            Kind::TokenRefused | Kind::QuotaExhausted | Kind::Tls
        )
    }

    /// Whether the issuer of the server's certificate is unknown. If so, add its CA to your root
    /// certificates.
    #[must_use]
    pub fn is_unknown_issuer(&self) -> bool {
        // By text: rustls does not export this error of its verifier.
        let unknown = |error: &(dyn StdError + 'static)| {
            let text = error.to_string();
            text.contains("UnknownIssuer") || text.contains("unknown issuer")
        };
        self.kind() == Kind::Tls && self.causes().any(unknown)
    }

    /// Whether a timeout ended an attempt, a wait for a limit, the service's work, or the whole
    /// call.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        let late = [408, 504, 522, 524];
        matches!(self.kind(), Kind::LimitTimeout | Kind::Timeout)
            || self.gave_up() == Some(GiveUp::Deadline)
            || self.status().is_some_and(|s| late.contains(&s.as_u16()))
            || self.causes().any(is_late)
    }

    /// Whether any attempt of the request can have reached the service.
    #[must_use]
    pub fn sent(&self) -> Sent {
        self.facts().cause.sent
    }

    /// Returns the status, if the service responded.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        Some(self.facts().response.as_ref()?.status)
    }

    /// Returns the message of the service: at most 200 characters, control characters escaped, and
    /// possible secrets removed.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.facts().response.as_ref()?.message.as_deref()
    }

    /// Returns the part of the response body that was read, unchanged: at most 16 KiB, unless you
    /// [set another bound](crate::ClassifyLayer::error_bodies).
    ///
    /// Mind what you do with it: the service may echo parts of the request. The texts of this error
    /// show only its [message](Self::message), redacted.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.facts().response.as_ref().map_or(&[], |it| &it.body)
    }

    /// Whether [`body`](Self::body) is only the beginning of the response body.
    #[must_use]
    pub fn is_body_cut(&self) -> bool {
        self.facts().response.as_ref().is_some_and(|it| it.is_cut)
    }

    /// Returns the minimum wait before another attempt, counted from the error.
    ///
    /// It is the wait that the service requests, and at least one second after
    /// [`Kind::RateExceeded`](crate::Kind::RateExceeded).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.facts().cause.wait
    }

    pub(crate) fn request_id(&self) -> Option<&str> {
        self.facts().response.as_ref()?.request_id.as_deref()
    }

    /// Returns the URI of the request that failed: scheme, host, port and path, redacted.
    #[must_use]
    pub fn uri(&self) -> Option<&str> {
        Some(&self.facts().cause.request.as_ref()?.1)
    }

    pub(crate) fn method(&self) -> Option<&Method> {
        Some(&self.facts().cause.request.as_ref()?.0)
    }

    /// Returns the number of attempts; zero if none began.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.facts().attempts
    }

    /// Returns the duration of the call with all attempts and waits, if there was a retry layer.
    pub(crate) fn elapsed(&self) -> Option<Duration> {
        self.facts().elapsed
    }

    /// Returns why the retry layer gave up, if there was one.
    ///
    /// If you nest retry layers, the outer one does not retry an error that has a reason, so
    /// requests do not multiply.
    #[must_use]
    pub fn gave_up(&self) -> Option<GiveUp> {
        self.facts().gave_up
    }

    /// Returns what the call was waiting for when its deadline passed, for example `a response`.
    #[must_use]
    pub fn waited_for(&self) -> Option<&str> {
        self.facts().cause.waited_for.as_deref()
    }

    /// Returns the number of body bytes received from a success that ended early.
    #[must_use]
    pub fn received(&self) -> Option<u64> {
        Some(self.facts().received?.0)
    }

    /// Returns the retry rule: the kind's own, unless a layer or the service expects a resend to help.
    pub(crate) fn advice(&self) -> Advice {
        let own = self.kind().row().advice;
        let cause = &self.facts().cause;
        match (cause.resend, cause.wait, own) {
            (Some(Resend::Free | Resend::Paid), Some(_), Advice::Never | Advice::Once) => {
                Advice::Backoff
            }
            (Some(Resend::Free | Resend::Paid), None, Advice::Never) => Advice::Once,
            _ => own,
        }
    }

    /// Whether a layer pays for a resend, because it expects success or spaces such calls.
    pub(crate) fn is_free(&self) -> bool {
        self.facts().cause.resend == Some(Resend::Free)
    }

    pub(crate) fn from_kind(kind: Kind) -> Self {
        Self::build(Facts::new(kind), None)
    }

    pub(crate) fn build(mut facts: Facts, source: Option<BoxError>) -> Self {
        if let Some(source) = source {
            facts.cause = facts.cause.over(source);
        }
        Self(Box::new(facts))
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.0
    }

    pub(crate) fn facts_mut(&mut self) -> &mut Facts {
        &mut self.0
    }
}

/// Unboxes an [`Error`], finds one in the chain, or reads the chain.
///
/// With this conversion the layers of this crate work over services with any error.
impl From<BoxError> for Error {
    fn from(error: BoxError) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => *error,
            Err(error) => Self::read(error),
        }
    }
}

/// Makes an error of what a layer of your own knows about a failure.
///
/// ```
/// use tower_tds_errors::{Error, GiveUp, Kind, Outcome};
/// use tower_tds_outcome::{Cause, Resend};
///
/// let mut cause = Cause::new(Outcome::NoPermit);
/// cause.waited_for = Some("one of 60 permits".into());
/// cause.resend = Some(Resend::TooLate);
/// let error = Error::from(cause.over("the queue is full"));
/// assert_eq!((error.kind(), error.gave_up()), (Kind::LimitTimeout, Some(GiveUp::Deadline)));
/// assert_eq!(error.waited_for(), Some("one of 60 permits"));
/// ```
impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        BoxError::from(cause).into()
    }
}

/// Lets `?` convert errors of files and sockets as well as those of calls.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        BoxError::from(error).into()
    }
}

// === impl Facts ===

impl Facts {
    pub(crate) fn new(kind: Kind) -> Self {
        let mut facts = Self {
            kind,
            cause: Cause::new(kind.row().outcome),
            response: None,
            attempts: 1,
            elapsed: None,
            gave_up: None,
            received: None,
        };
        facts.settle();
        facts
    }

    /// Reads the cause of a failure that no layer below knows better.
    fn of(cause: &Cause) -> Self {
        let mut facts = Self::new(Kind::of(cause));
        facts.cause = cause.clone();
        facts
    }

    /// Reads the cause of a layer that had nothing to send, whatever is below.
    fn of_own(cause: &Cause) -> Option<Self> {
        let (Outcome::NoPermit
        | Outcome::NoToken
        | Outcome::TokenDenied
        | Outcome::AddressNotAllowed) = cause.outcome
        else {
            return None;
        };
        let mut facts = Self::of(cause);
        // The failure of a token request may be one that does not go away by itself, and may
        // have advice of its own: about certificates, or about a proxy.
        let (below, next) = transport::below(cause);
        facts.kind = match (facts.kind, below) {
            (Kind::TokenUnavailable, Kind::Tls) => Kind::Tls,
            (Kind::TokenUnavailable, Kind::Rejected) => Kind::TokenRefused,
            (kind, _) => kind,
        };
        if next.is_some() || facts.kind != Kind::of(cause) {
            facts.cause.next = next;
        }
        Some(facts)
    }

    /// Takes from the layer above its decision about a resend, and the secrets if none are known here. The advice of the
    /// nearest layer stays.
    fn add(&mut self, above: &Cause) {
        let cause = &mut self.cause;
        cause.resend = above.resend.or(cause.resend);
        cause.wait = above.wait.or(cause.wait);
        cause.waited_for = above.waited_for.clone().or(cause.waited_for.take());
        cause.secrets = cause.secrets.take().or_else(|| above.secrets.clone());
    }

    /// Updates what the failure means for the token and the limits, after a change of the facts that decide it.
    fn settle(&mut self) {
        let status = self.response.as_ref().map(|it| it.status);
        let own = self.kind.row().outcome;
        self.cause.outcome = match own {
            Outcome::QuotaExceeded(_) => Outcome::QuotaExceeded(self.cause.wait),
            // Kinds of responses that mean more than their status.
            _ if self.kind.sent() == Sent::Answered && own != Outcome::Other => own,
            // Whatever its text, a 401 refuses the token.
            _ if status == Some(StatusCode::UNAUTHORIZED) => Outcome::TokenRefused,
            _ if status == Some(StatusCode::GATEWAY_TIMEOUT) => Outcome::GatewayTimedOut,
            _ => match self.cause.sent {
                Sent::Never => Outcome::Unsent,
                Sent::Unknown => Outcome::Lost,
                _ => Outcome::Other,
            },
        };
    }

    /// Changes the kind, and raises the wait to the minimum of the kind.
    pub(crate) fn set_kind(&mut self, kind: Kind) {
        self.kind = kind;
        if kind.row().advice == Advice::Silence && self.cause.wait < Some(SILENCE) {
            self.cause.wait = Some(SILENCE);
        }
        self.settle();
    }

    /// Returns a text of a service or of a cause on one line, without secrets; `None` if nothing is
    /// left.
    pub(crate) fn shown(&self, text: &str) -> Option<Box<str>> {
        let secrets = self.cause.secrets.clone().unwrap_or_default();
        Some(secrets.line(text).into_boxed_str()).filter(|line| !line.is_empty())
    }

    /// Records the request, unless a layer nearer to the failure has done so.
    pub(crate) fn note_request(&mut self, method: &Method, uri: &Uri) {
        if self.cause.request.is_none() {
            let shown = self.shown(&place(uri)).unwrap_or_default();
            self.cause.request = Some((method.clone(), shown));
        }
    }
}

/// Returns the first error of a type in the chain.
fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    chain(error).find_map(|error| error.downcast_ref())
}

/// Whether an error is a timeout, for example of a connect or of a stalled body.
fn is_late(error: &(dyn StdError + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
        || error.is::<tower::timeout::error::Elapsed>()
        || error.is::<tokio::time::error::Elapsed>()
}

#[cfg(test)]
mod tests;
