//! The error of a failed call: one pointer to its facts.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use tower::BoxError;
use tower_tds_outcome::{Cause, Outcome, Secrets, chain};

use crate::kind::{Advice, GiveUp, Kind, SILENCE, Sent};

mod display;
pub(crate) mod redact;
mod transport;

/// A failed request: what went wrong, whether to try again, and when.
///
/// [`Display`](std::fmt::Display) is one line of at most 300 characters: the URL that failed, what
/// happened, why, and what to do next. `{:#}` adds the chain of causes, and `Debug` adds the kind,
/// the status and the number of attempts. None of these texts contains a token, a secret or the
/// query of the call's URL.
///
/// Wrap the errors of your own layers with [`new`](Self::new), so that the retry layer treats them
/// like its own.
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
pub struct Error {
    inner: Box<Inner>,
}

struct Inner {
    facts: Facts,
    /// Meaning of the failure for the token and the limits, for the layers above.
    cause: Cause,
}

/// Facts of a failure, besides its cause.
#[derive(Clone, Default)]
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    /// Whether the request was sent. [`set_kind`](Self::set_kind) does not change it.
    pub(crate) sent: Sent,
    pub(crate) status: Option<StatusCode>,
    /// Message of the service, without possible secrets.
    pub(crate) message: Option<Box<str>>,
    pub(crate) request_id: Option<Box<str>>,
    /// Where a redirect leads, redacted.
    pub(crate) location: Option<Box<str>>,
    /// Headers of the response that this error stands for, and as much of its body as was read.
    pub(crate) headers: Option<HeaderMap>,
    pub(crate) body: Bytes,
    pub(crate) is_cut: bool,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) method: Option<Method>,
    pub(crate) uri: Option<Box<str>>,
    pub(crate) attempts: u32,
    pub(crate) elapsed: Option<Duration>,
    pub(crate) gave_up: Option<GiveUp>,
    /// Cause of the wait in which the deadline passed.
    pub(crate) waited_for: Option<Cow<'static, str>>,
    /// Bytes received, and bytes announced, of a success whose body ended early.
    pub(crate) received: Option<u64>,
    pub(crate) expected: Option<u64>,
    /// Advice in place of the kind's own.
    pub(crate) next: Option<Cow<'static, str>>,
    /// Retry rule in place of the kind's own.
    pub(crate) advice: Option<Advice>,
    /// Whether a retry costs no budget.
    pub(crate) is_free: bool,
    /// Values that no text may show.
    pub(crate) secrets: Option<Secrets>,
}

// === impl Error ===

impl Error {
    /// Creates an error of `kind`, caused by `source`.
    ///
    /// If `source` wraps an error of this type, the new error keeps its status, hint and attempts,
    /// and [`sent`](Self::sent) where that is [`Sent::Answered`] or [`Sent::Unknown`]. Otherwise
    /// `kind` decides: with [`Kind::Connect`], for example, nothing was sent.
    #[must_use]
    pub fn new(kind: Kind, source: impl Into<BoxError>) -> Self {
        let source = source.into();
        let facts = match find::<Self>(&*source) {
            Some(known) => {
                let mut facts = known.facts().clone();
                if facts.sent == Sent::Never {
                    facts.sent = kind.row().sent;
                }
                facts.next = None;
                facts.set_kind(kind);
                facts
            }
            None => Facts::new(kind),
        };
        Self::build(facts, Some(source))
    }

    /// Sets the minimum wait before another attempt.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.facts_mut().retry_after = Some(wait);
        self.settle();
        self
    }

    /// Sets the request that failed, if it is not the caller's, for example a token request.
    #[must_use]
    pub fn with_request(mut self, method: Method, uri: &Uri) -> Self {
        let facts = self.facts_mut();
        facts.method = None;
        // Dropped, because the response to another request is not the caller's.
        facts.headers = None;
        facts.note_request(&method, uri);
        self
    }

    /// Sets the secrets that no text of this error shows, for example those of a token request.
    ///
    /// [`source`](std::error::Error::source) returns the cause unchanged.
    #[must_use]
    pub fn with_secrets(self, secrets: Secrets) -> Self {
        self.with_known(Some(secrets))
    }

    pub(crate) fn with_known(mut self, secrets: Option<Secrets>) -> Self {
        let facts = self.facts_mut();
        facts.secrets = secrets.or(facts.secrets.take());
        self
    }

    /// Sets the advice for what to do next, in place of the kind's own.
    #[must_use]
    pub fn with_advice(mut self, next: &'static str) -> Self {
        self.facts_mut().next = Some(next.into());
        self
    }

    /// Sets whether the request was sent, if the kind alone does not decide it.
    #[must_use]
    pub fn with_sent(mut self, sent: Sent) -> Self {
        self.facts_mut().sent = sent;
        self.settle();
        self
    }

    /// Sets what the call [waited for](Self::waited_for) when it ended.
    #[must_use]
    pub fn with_waited_for(mut self, cause: impl Into<Cow<'static, str>>) -> Self {
        self.facts_mut().waited_for = Some(cause.into());
        self
    }

    /// Sets the number of body bytes received from a success that ended early, and its announced
    /// length.
    #[must_use]
    pub fn with_received(mut self, received: u64, expected: Option<u64>) -> Self {
        let facts = self.facts_mut();
        facts.received = Some(received);
        facts.expected = expected;
        self
    }

    /// Marks a refused call that may succeed with a newer token.
    ///
    /// Retry layers send it once more, at once and without a charge to their budget.
    #[must_use]
    pub fn with_one_resend(mut self) -> Self {
        let facts = self.facts_mut();
        (facts.advice, facts.is_free) = (Some(Advice::Once), true);
        self
    }

    /// Marks a refused call that may succeed with the same token after this wait.
    ///
    /// Retry layers treat it as an outage: they wait at least that long, and charge their budget.
    #[must_use]
    pub fn with_retries_after(mut self, wait: Duration) -> Self {
        self.facts_mut().advice = Some(Advice::Backoff);
        self.with_retry_after(wait)
    }

    /// Marks a call whose retries are delayed by a layer below, such as a limiter.
    ///
    /// Such retries are bounded by attempts and the deadline, and cost no budget.
    #[must_use]
    pub fn with_paced_retries(mut self) -> Self {
        self.facts_mut().is_free = true;
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
    /// let client = service_fn(async |_: Request<()>| {
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
    /// let error = stack.oneshot(Request::new(())).await.unwrap_err();
    /// assert_eq!((error.kind(), error.attempts()), (Kind::Unavailable, 3));
    /// # }
    /// ```
    pub fn set_kind(&mut self, kind: Kind) {
        self.facts_mut().set_kind(kind);
        self.settle();
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
        self.facts().sent
    }

    /// Returns the meaning of the failure for the token and the limits, as the layers above read it
    /// from the chain of sources.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.inner.cause.outcome()
    }

    /// Returns the status, if the service responded.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.facts().status
    }

    /// Returns the message of the service: at most 200 characters, control characters escaped, and
    /// possible secrets removed.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.facts().message.as_deref()
    }

    /// Returns the part of the response body that was read, unchanged: at most 16 KiB.
    ///
    /// Mind what you do with it: the service may echo parts of the request. The texts of this error
    /// show only its [message](Self::message), redacted.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.facts().body
    }

    /// Whether [`body`](Self::body) is only the beginning of the response body.
    #[must_use]
    pub fn is_body_cut(&self) -> bool {
        self.facts().is_cut
    }

    /// Returns the headers of the response, if the service responded to the request of the caller.
    ///
    /// Mind what you log of them: a `Set-Cookie` is secret. Texts of this error show no more than a
    /// challenge, the request id and the target of a redirect, all redacted.
    #[must_use]
    pub fn headers(&self) -> Option<&HeaderMap> {
        self.facts().headers.as_ref()
    }

    /// Returns the minimum wait before another attempt, counted from the error.
    ///
    /// It is the wait that the service requests, and at least one second after
    /// [`Kind::RateExceeded`](crate::Kind::RateExceeded).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.facts().retry_after
    }

    /// Returns the request id for the service's owner, if it consists of hexadecimal digits and
    /// hyphens.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.facts().request_id.as_deref()
    }

    /// Returns the URI of the request that failed: scheme, host, port and path, redacted.
    #[must_use]
    pub fn uri(&self) -> Option<&str> {
        self.facts().uri.as_deref()
    }

    /// Returns the number of attempts; zero if none began.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.facts().attempts
    }

    /// Returns the duration of the call with all attempts and waits, if there was a retry layer.
    #[must_use]
    pub fn elapsed(&self) -> Option<Duration> {
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
        self.facts().waited_for.as_deref()
    }

    /// Returns the number of body bytes received from a success that ended early.
    #[must_use]
    pub fn received(&self) -> Option<u64> {
        self.facts().received
    }

    /// Returns the retry rule: the kind's own, unless a layer has set another one.
    pub(crate) fn advice(&self) -> Advice {
        self.facts().advice.unwrap_or(self.kind().row().advice)
    }

    pub(crate) fn from_kind(kind: Kind) -> Self {
        Self::build(Facts::new(kind), None)
    }

    pub(crate) fn build(facts: Facts, source: Option<BoxError>) -> Self {
        let cause = Cause::new(facts.outcome(), source);
        let inner = Box::new(Inner { facts, cause });
        Self { inner }
    }

    /// Updates the outcome after a change of the facts that decide it.
    fn settle(&mut self) {
        let outcome = self.facts().outcome();
        self.inner.cause.set_outcome(outcome);
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.inner.facts
    }

    pub(crate) fn facts_mut(&mut self) -> &mut Facts {
        &mut self.inner.facts
    }
}

// === impl Facts ===

impl Facts {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            sent: kind.row().sent,
            attempts: 1,
            ..Self::default()
        }
    }

    /// Returns the meaning of the failure for the token and the limits.
    fn outcome(&self) -> Outcome {
        match self.kind {
            Kind::MissingRole => Outcome::RoleMissing,
            Kind::MissingCredentials => Outcome::NoHeader,
            Kind::InvalidToken | Kind::Unauthorized => Outcome::TokenRefused,
            Kind::RateExceeded => Outcome::RateExceeded,
            Kind::Throttled | Kind::QuotaExhausted => Outcome::QuotaExceeded(self.retry_after),
            // A `RangeUnclear` is most often about its range, so it slows no other request: if it was
            // about connections, the next request without a range is a `ConnectionLimit`.
            Kind::ConnectionLimit => Outcome::ConnectionsExceeded,
            // Whatever its text, a 401 refuses the token.
            _ if self.status == Some(StatusCode::UNAUTHORIZED) => Outcome::TokenRefused,
            _ if self.status == Some(StatusCode::GATEWAY_TIMEOUT) => Outcome::GatewayTimedOut,
            _ => match self.sent {
                Sent::Answered => Outcome::Other,
                Sent::Never => Outcome::Unsent,
                Sent::Unknown => Outcome::Lost,
            },
        }
    }

    /// Changes the kind, and raises the wait to the minimum of the kind.
    pub(crate) fn set_kind(&mut self, kind: Kind) {
        self.kind = kind;
        if kind.row().advice == Advice::Silence && self.retry_after < Some(SILENCE) {
            self.retry_after = Some(SILENCE);
        }
    }

    /// Returns a text of a service or of a cause on one line, without secrets; `None` if nothing is
    /// left.
    pub(crate) fn shown(&self, text: &str) -> Option<Box<str>> {
        let line = match &self.secrets {
            Some(secrets) => secrets.line(text),
            None => Secrets::default().line(text),
        };
        Some(line.into_boxed_str()).filter(|line| !line.is_empty())
    }

    /// Records the request, unless a layer nearer to the failure has done so.
    pub(crate) fn note_request(&mut self, method: &Method, uri: &Uri) {
        if self.method.is_none() {
            self.method = Some(method.clone());
            self.uri = Some(redact::uri(uri));
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
