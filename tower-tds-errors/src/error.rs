//! The crate's error: one word wide, with what is known of a failed call, and its caller's next move.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Method, StatusCode, Uri};
use tower::BoxError;

use crate::clock;
use crate::give_up::GiveUp;
use crate::kind::{Advice, Kind, Sent};
use crate::retry::SILENCE;

mod display;
pub(crate) mod redact;
pub(crate) mod source;

/// Says what went wrong with a request, whether to try again, and when.
///
/// [`Display`](std::fmt::Display) is one line of at most 300 characters: the URL that failed, what
/// happened, why, and what to do next. `{:#}` adds the chain of causes. `Debug` is that line with
/// kind, status and attempts. None of them has a token, a secret or the query of a URL.
///
/// Layers of other crates become part of the picture by [`new`](Self::new): the retry layer treats
/// their failures like its own. What an error of this type inside `source` knows stays known.
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
///     "no permit was free in time: waited 5 s for one of 60 permits; \
///      send less at once, or allow a longer wait",
/// );
/// ```
pub struct Error {
    inner: Box<Inner>,
}

struct Inner {
    facts: Facts,
    source: Option<BoxError>,
}

/// What is known of a failure, besides its cause.
#[derive(Clone, Default)]
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    /// Known from what happened, and not changed with the kind.
    pub(crate) sent: Sent,
    pub(crate) status: Option<StatusCode>,
    /// The service's words, scrubbed.
    pub(crate) message: Option<Box<str>>,
    /// The coding in which the body was left.
    pub(crate) coding: Option<Box<str>>,
    pub(crate) request_id: Option<Box<str>>,
    /// Where a redirect leads, redacted.
    pub(crate) location: Option<Box<str>>,
    pub(crate) body: Bytes,
    /// Whether there was more of the body than was read.
    pub(crate) is_cut: bool,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) retry_at: Option<SystemTime>,
    pub(crate) method: Option<Method>,
    pub(crate) uri: Option<Box<str>>,
    pub(crate) attempts: u32,
    pub(crate) elapsed: Option<Duration>,
    pub(crate) gave_up: Option<GiveUp>,
    /// What the deadline found the call waiting for.
    pub(crate) waited_for: Option<Cow<'static, str>>,
    /// Bytes of a success that came before it broke off, and how many were announced.
    pub(crate) received: Option<u64>,
    pub(crate) expected: Option<u64>,
    /// What to do next, where the kind's own advice does not fit the place.
    pub(crate) next: Option<&'static str>,
    /// Whether a newer token may help.
    pub(crate) resends: bool,
}

// === impl Error ===

impl Error {
    /// An error of `kind`, caused by `source`.
    ///
    /// If `source` wraps an error of this type, its status, its hint and its attempts are this one's
    /// too, and so is whether the request was sent, unless it never was: then `kind` says it. Of any other
    /// source nothing is asked, and `kind` alone says it: [`Kind::Connect`] says that nothing was sent.
    #[must_use]
    pub fn new(kind: Kind, source: impl Into<BoxError>) -> Self {
        let source = source.into();
        let facts = match Self::find(&*source) {
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

    /// Sets the least wait before another attempt.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.facts_mut().set_retry_after(wait);
        self
    }

    /// Names the request that failed, where it is not the caller's own: that for a token, say.
    #[must_use]
    pub fn with_request(mut self, method: Method, uri: &Uri) -> Self {
        let facts = self.facts_mut();
        facts.method = None;
        facts.note_request(&method, uri);
        self
    }

    /// Says what to do next, where the advice of the kind does not fit.
    #[must_use]
    pub fn with_advice(mut self, next: &'static str) -> Self {
        self.facts_mut().next = Some(next);
        self
    }

    /// Sets whether the request was sent, where the kind alone does not decide it.
    #[must_use]
    pub fn with_sent(mut self, sent: Sent) -> Self {
        self.facts_mut().sent = sent;
        self
    }

    /// Sets what the call [waited for](Self::waited_for) when it ended.
    #[must_use]
    pub fn with_waited_for(mut self, cause: impl Into<Cow<'static, str>>) -> Self {
        self.facts_mut().waited_for = Some(cause.into());
        self
    }

    /// Changes what the failure means. Whether the request was sent stays what it is.
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
    ///     // This service says 404 while it is deployed.
    ///     .map_err(|mut error: Error| {
    ///         if error.message().is_some_and(|said| said.starts_with("no Route")) {
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
    }

    /// Marks a refused call that a newer token may help: a retry layer sends it once more, at once and
    /// at no charge to its budget.
    pub fn resend_once(&mut self) {
        self.facts_mut().resends = true;
    }

    /// Forbids that it is retried: for a layer that knows that the next attempt would meet the same,
    /// say with the same token.
    pub fn forbid_retry(&mut self) {
        self.facts_mut().gave_up = Some(GiveUp::Forbidden);
    }

    /// Finds an error of this type in `error` or in what it wraps.
    #[must_use]
    pub fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        source::find(error)
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.facts().kind
    }

    /// Whether the same request, sent again, may succeed.
    ///
    /// It stays true when the attempts are used up; [`gave_up`](Self::gave_up) says that. What
    /// forbids it makes it false, and so does a [`Kind::Unauthorized`] whose body was cut: what came
    /// of it may have left out the reason.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.advice() != Advice::Never && self.gave_up() != Some(GiveUp::Forbidden)
    }

    /// Whether all other calls of the same job will fail by the same: a quota that is gone for longer
    /// than a minute, credentials or a certificate that somebody has to change.
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

    /// Whether no root certificate vouches for the server's: its CA has to be added to them.
    #[must_use]
    pub fn is_unknown_issuer(&self) -> bool {
        // rustls says so.
        let unknown = |error: &(dyn StdError + 'static)| {
            let text = error.to_string();
            text.contains("UnknownIssuer") || text.contains("unknown issuer")
        };
        self.kind() == Kind::Tls && self.causes().any(unknown)
    }

    /// Whether something took too long: an attempt, a limit, the service, or the call as a whole.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        let late = [408, 504, 522, 524];
        matches!(self.kind(), Kind::LimitTimeout | Kind::Timeout)
            || self.gave_up() == Some(GiveUp::Deadline)
            || self.status().is_some_and(|s| late.contains(&s.as_u16()))
            || self.inner.source.as_deref().is_some_and(source::is_late)
    }

    /// Whether the request can have reached the service, by any of its attempts.
    #[must_use]
    pub fn sent(&self) -> Sent {
        self.facts().sent
    }

    /// The status, if the service answered.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.facts().status
    }

    /// The service's own words: at most 200 characters, control characters escaped, and whatever
    /// may be a secret taken out.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.facts().message.as_deref()
    }

    /// What was read of the answer's body, as it came: at most 16 KiB of it.
    ///
    /// It may hold what the service echoed of the request. So it is in no text of this error.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.facts().body
    }

    /// Where a redirect leads: scheme, host, port and path, as far as they may be shown.
    #[must_use]
    pub fn location(&self) -> Option<&str> {
        self.facts().location.as_deref()
    }

    /// The least wait before another attempt, counted from when the error came: what the service
    /// asks for, and never less than a second after [`Kind::RateExceeded`](crate::Kind::RateExceeded).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.facts().retry_after
    }

    /// When that wait ends, on this machine's wall clock.
    #[must_use]
    pub fn retry_at(&self) -> Option<SystemTime> {
        self.facts().retry_at
    }

    /// The id to quote to the service's owner, if it is one of hexadecimal digits.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.facts().request_id.as_deref()
    }

    /// The URI of the request that failed: scheme, host, port and path, as far as they may be shown.
    #[must_use]
    pub fn uri(&self) -> Option<&str> {
        self.facts().uri.as_deref()
    }

    /// How many attempts were made: none, if the request never got as far.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.facts().attempts
    }

    /// How long the call took, attempts and waits together, if a retry layer watched.
    #[must_use]
    pub fn elapsed(&self) -> Option<Duration> {
        self.facts().elapsed
    }

    /// Why the retry layer gave up, if there was one. An outer retry layer leaves such an error
    /// alone, so that nesting does not multiply requests.
    #[must_use]
    pub fn gave_up(&self) -> Option<GiveUp> {
        self.facts().gave_up
    }

    /// What the deadline found the call waiting for.
    #[must_use]
    pub fn waited_for(&self) -> Option<&str> {
        self.facts().waited_for.as_deref()
    }

    /// How many bytes of a success came before it broke off, told by [`Guard`](crate::Guard).
    #[must_use]
    pub fn received(&self) -> Option<u64> {
        self.facts().received
    }

    /// How it is retried: as its kind is, unless its words were cut.
    pub(crate) fn advice(&self) -> Advice {
        if self.facts().resends {
            return Advice::Once;
        }
        if self.kind() == Kind::Unauthorized && self.facts().is_cut {
            return Advice::Never;
        }
        self.kind().row().advice
    }

    /// Whether any method may be sent again after it: nothing was processed, or RFC 9110 says so (401
    /// in 15.5.2, 408 in 15.5.9, 413 with a hint in 15.5.14, 421 in 15.5.20; 425 in RFC 8470, 5.2).
    pub(crate) fn repeats_any_method(&self) -> bool {
        let told = [401, 408, 413, 421, 425];
        self.sent() == Sent::Never || self.status().is_some_and(|s| told.contains(&s.as_u16()))
    }

    pub(crate) fn from_kind(kind: Kind) -> Self {
        Self::build(Facts::new(kind), None)
    }

    pub(crate) fn build(facts: Facts, source: Option<BoxError>) -> Self {
        let inner = Box::new(Inner { facts, source });
        Self { inner }
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

    /// Makes it another kind, with the wait that the kind has at least.
    pub(crate) fn set_kind(&mut self, kind: Kind) {
        self.kind = kind;
        if kind.row().advice == Advice::Silence && self.retry_after < Some(SILENCE) {
            self.set_retry_after(SILENCE);
        }
    }

    pub(crate) fn set_retry_after(&mut self, wait: Duration) {
        self.retry_after = Some(wait);
        // None if the calendar ends before.
        self.retry_at = clock::wall().checked_add(wait);
    }

    /// Notes the request, unless a layer nearer to the failure has.
    pub(crate) fn note_request(&mut self, method: &Method, uri: &Uri) {
        if self.method.is_none() {
            self.method = Some(method.clone());
            self.uri = Some(redact::uri(uri));
        }
    }
}

#[cfg(test)]
mod tests;
