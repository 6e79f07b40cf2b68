//! One call: its attempts, one after another, within one deadline.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};

use http::header::CONTENT_LENGTH;
use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, Version,
};
use tokio::time::Instant;
use tower::BoxError;
use tower_service::Service;
use tower_tds_outcome::{DeadlineAt, Outcome, Sent};
use tracing::Instrument as _;

use super::policy::{Policy, RetryState};
use super::request::{Attempt, Replay};
use super::trace::{CallRecord, Name};
use crate::classify::{RequestFacts, by_head, error_of, is_success};
use crate::clock::{self, Timer};
use crate::error::Error;
use crate::kind::{GiveUp, Kind};

/// One call: the service below, the request that its attempts send, and its failures so far.
pub(super) struct RetriedCall<S, B, P> {
    service: S,
    settings: Arc<RetrySettings<P>>,
    record: CallRecord,
    deadline: Option<Instant>,
    /// The caller's own request, until the first attempt sends it.
    first: Option<Request<B>>,
    // Copy of its head, for the next attempts and for errors.
    method: Method,
    uri: Uri,
    version: Version,
    extensions: Extensions,
    /// A list takes one allocation, where a map takes two.
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Body of the next attempt after the first. Without one there is none.
    body: Option<B>,
    /// Size of the body before the first attempt.
    size: Option<u64>,
    /// Set by the first failure. Most calls have none, so they don't pay for it.
    past: Option<Box<RetryState>>,
}

/// Settings of a layer, which its services and their calls share.
#[derive(Clone, Debug)]
pub(super) struct RetrySettings<P> {
    pub(super) policy: Policy,
    pub(super) replay: P,
    pub(super) name: Name,
}

// === impl RetriedCall ===

impl<S, B, P: Replay<B>> RetriedCall<S, B, P> {
    #[inline]
    pub(super) fn new(
        service: S,
        settings: Arc<RetrySettings<P>>,
        began: Instant,
        record: CallRecord,
        request: Request<B>,
    ) -> Self {
        Self {
            deadline: settings.policy.deadline(request.extensions(), began),
            size: settings.replay.size(request.body()),
            service,
            settings,
            record,
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            extensions: request.extensions().clone(),
            headers: list(request.headers()),
            first: Some(request),
            body: None,
            past: None,
        }
    }

    /// Makes attempts until one succeeds, no other may follow, or the deadline passes.
    ///
    /// Not an async function, whose future would have room for the call twice. An attempt is in a box of its own, because
    /// a future beyond a kilobyte takes a slower path of the allocator.
    pub(super) fn run<R>(mut self) -> impl Future<Output = Result<Response<R>, Error>>
    where
        S: Service<Request<B>, Response = Response<R>>,
        S::Error: Into<BoxError>,
    {
        let mut timer = Timer::default();
        async move {
            let error = loop {
                if let Err(error) = self.check_length() {
                    break error;
                }
                let ready = pin!(poll_fn(|cx| self.service.poll_ready(cx)));
                match within(ready, self.deadline, &mut timer).await {
                    Some(Err(error)) => {
                        let error = Some(Error::from(error.into()));
                        break self.give_up(GiveUp::NotReady, error);
                    }
                    // Nothing is sent after the deadline: the service that keeps it sees to that itself.
                    Some(Ok(())) if self.settings.policy.is_kept_below || !self.is_over() => {}
                    Some(Ok(())) | None => {
                        break self.late("the service below to be ready", Sent::Never);
                    }
                }
                // In a block, so that the wait for the next attempt holds nothing of this one.
                let error = {
                    let Some(request) = self.request() else {
                        break self.give_up(GiveUp::NotReplayable, None);
                    };
                    // Of the copy, because the future would keep room for a request that is borrowed here.
                    let (method, uri) = (&self.method, &self.uri);
                    let mut record =
                        CallRecord::attempt(method, uri, self.attempts(), &self.settings.name);
                    // If the deadline is kept below, the service itself wakes at it, and returns an
                    // error.
                    let policy = &self.settings.policy;
                    let deadline = self.deadline.filter(|_| !policy.is_kept_below);
                    let attempt = {
                        let _entered = record.span.enter();
                        self.service.call(request)
                    };
                    let mut attempt = Box::pin(attempt.instrument(record.span.clone()));
                    match within(attempt.as_mut(), deadline, &mut timer).await {
                        None => break self.late(A_RESPONSE, Sent::Unknown),
                        Some(Ok(mut response)) => {
                            record.end(Ok(&response));
                            let Some(error) = self.unclassified(&response) else {
                                self.succeeded(&mut response);
                                return Ok(response);
                            };
                            error
                        }
                        Some(Err(error)) => {
                            let error = Error::from(error.into());
                            record.end::<R>(Err(&error));
                            error
                        }
                    }
                };
                match self.failed(error) {
                    Ok(None) => {}
                    Ok(next) => poll_fn(|cx| timer.poll(next, cx)).await,
                    Err(error) => break error,
                }
            };
            self.record.end::<R>(Err(&error));
            Err(error)
        }
    }

    /// Refuses a `Content-Length` that is not the size of the body. A server would read the rest of
    /// the body as the next request on its connection, or wait for it. The length of a body of
    /// unknown size is checked by its client as it sends it.
    fn check_length(&self) -> Result<(), Error> {
        // A scan of a few names is faster than a hash.
        let headers = self.headers.iter();
        let mut lengths = headers.filter(|(name, _)| *name == CONTENT_LENGTH);
        let Some((_, length)) = lengths.next() else {
            return Ok(());
        };
        let length = length.to_str().ok();
        // RFC 9110, section 8.6: digits alone.
        let digits = length.filter(|text| !text.starts_with('+'));
        let announced: Option<u64> = digits.and_then(|text| text.parse().ok());
        let fits = match (announced, self.size) {
            (Some(announced), Some(size)) => announced == size,
            (announced, None) => announced.is_some(),
            (None, Some(_)) => false,
        };
        if fits && lengths.next().is_none() {
            return Ok(());
        }
        let size = self.size.map(|size| format!(", which has {size} bytes"));
        let text = format!(
            "its Content-Length is not that of its body{}",
            size.unwrap_or_default()
        );
        let error = Error::new(Kind::InvalidRequest, text).with_advice(LENGTH);
        Err(error.with_request(self.method.clone(), &self.uri))
    }

    /// Returns the request of the next attempt. The first is the caller's own, because layers below add headers, for
    /// which it may have room.
    #[inline]
    fn request(&mut self) -> Option<Request<B>> {
        let mut request = match self.first.take() {
            Some(first) => first,
            None => self.repeated()?,
        };
        let number = self.attempts();
        if self.settings.policy.attempts.get() > 1 {
            self.body = self.settings.replay.replay(request.body());
        }
        let extensions = request.extensions_mut();
        if let Some(deadline) = self.deadline {
            DeadlineAt::bound(extensions, deadline.into_std());
        }
        if number > 1 {
            extensions.insert(Attempt(number));
        }
        Some(request)
    }

    /// Makes the same request once more.
    #[cold]
    fn repeated(&mut self) -> Option<Request<B>> {
        let mut request = Request::new(self.body.take()?);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = self.version;
        *request.extensions_mut() = self.extensions.clone();
        *request.headers_mut() = self.map();
        Some(request)
    }

    fn map(&self) -> HeaderMap {
        self.headers.iter().cloned().collect()
    }

    /// Whether the next attempt would send the same body as the first. The clones of some bodies
    /// share one stream, which an earlier attempt has read.
    fn is_replayable(&self) -> bool {
        let body = self.body.as_ref();
        body.is_some_and(|body| self.settings.replay.size(body) == self.size)
    }

    /// Returns the number of the current attempt.
    fn attempts(&self) -> u32 {
        self.past.as_ref().map_or(1, |past| past.attempts)
    }

    /// Returns the error of a response that no layer below has classified, by its head. Its body is
    /// dropped unread.
    fn unclassified<R>(&self, response: &Response<R>) -> Option<Error> {
        let has_own = response.extensions().get::<Outcome>().is_some();
        if !has_own && is_success(response.status()) {
            return None;
        }
        let request = RequestFacts::of(&self.map(), None);
        let kind = by_head(&request, response)?;
        let (mut head, ()) = Response::new(()).into_parts();
        head.status = response.status();
        head.headers = response.headers().clone();
        head.extensions = response.extensions().clone();
        Some(error_of(&request, kind, head, Vec::new(), true))
    }

    /// Records a success, also in the budget, or in the response by the number of its attempt.
    fn succeeded<R>(&mut self, response: &mut Response<R>) {
        let attempts = self.attempts();
        if attempts > 1 {
            tracing::debug!(attempts, "request succeeded");
            response.extensions_mut().insert(Attempt(attempts));
        } else {
            // Not before: calls that begin together would be worth fewer retries than they need.
            self.settings.policy.deposit();
        }
        self.record.end(Ok(&*response));
    }

    /// Returns the end of the wait before the next attempt, `None` for no wait, or the final error.
    #[cold]
    fn failed(&mut self, error: Error) -> Result<Option<Instant>, Error> {
        // If a retry layer below gave up, its error is final, so that nested ones do not multiply
        // attempts. If another layer gave the reason, the totals of the call are recorded below.
        let settled = error.gave_up();
        if settled.is_some() && error.elapsed().is_some() {
            return Err(error);
        }
        match self.after(&error) {
            Ok(end) => {
                if let Some(past) = &mut self.past {
                    past.keep(error);
                }
                Ok(end)
            }
            Err(GiveUp::Deadline) if self.is_over() || settled == Some(GiveUp::Deadline) => {
                Err(self.ended(error))
            }
            // The copy of the body cannot be sent, for example because it ended before its
            // announced length.
            Err(GiveUp::Fatal) if error.kind() == Kind::InvalidRequest && self.attempts() > 1 => {
                Err(self.note(error, GiveUp::NotReplayable, true))
            }
            Err(stop) => Err(self.note(error, stop, true)),
        }
    }

    fn after(&mut self, error: &Error) -> Result<Option<Instant>, GiveUp> {
        let now = clock::now();
        let left = self.deadline.map(|end| end.saturating_duration_since(now));
        let is_replayable = self.is_replayable();
        let state = self.past.get_or_insert_with(|| {
            self.settings.policy.deposit();
            let repeat = self.extensions.get().copied();
            Box::new(RetryState::new(&self.method, repeat))
        });
        let policy = &self.settings.policy;
        let wait = state.begin_retry(error, policy, is_replayable, left)?;
        let end = now.checked_add(wait).ok_or(GiveUp::HintTooLong)?;
        tracing::debug!(
            kind = %error.kind(),
            attempt = state.attempts.saturating_sub(1),
            wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "attempt failed, trying again",
        );
        Ok((!wait.is_zero()).then_some(end))
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|end| end <= clock::now())
    }

    /// Returns the error of a call at its deadline, if no layer below returned one.
    #[cold]
    fn late(&mut self, waited_for: &'static str, sent: Sent) -> Error {
        let mut error = Error::from_kind(Kind::Timeout).with_sent(sent);
        error.facts_mut().cause.waited_for = Some(waited_for.into());
        self.ended(error)
    }

    /// Returns the final error of a call whose last attempt ended with `error` at the deadline, or
    /// an earlier failure that explains more.
    fn ended(&mut self, mut error: Error) -> Error {
        let sent = error.sent();
        let waited_for = error.facts_mut().cause.waited_for.take();
        if error.status().is_none()
            && let Some(past) = &mut self.past
        {
            error = past.better(sent).unwrap_or(error);
        }
        let facts = error.facts_mut();
        facts.cause.waited_for = waited_for;
        if sent != Sent::Never {
            facts.cause.sent = sent;
        }
        let mut error = self.note(error, GiveUp::Deadline, true);
        if sent == Sent::Never {
            // The last attempt sent nothing, so it does not count.
            let attempts = error.attempts().saturating_sub(1);
            error.facts_mut().attempts = attempts;
        }
        error
    }

    /// Returns the error of an attempt that cannot begin: the failure before it, or the service's
    /// own.
    #[cold]
    fn give_up(&mut self, stop: GiveUp, error: Option<Error>) -> Error {
        let failure = self.past.as_mut().and_then(|past| past.take_back());
        let error = failure.or(error);
        let error = error.unwrap_or_else(|| Error::from_kind(Kind::InvalidRequest));
        self.note(error, stop, false)
    }

    /// Records the totals of the call, and why it ends.
    fn note(&self, mut error: Error, stop: GiveUp, has_begun: bool) -> Error {
        let facts = error.facts_mut();
        facts.note_request(&self.method, &self.uri);
        facts.attempts = match &self.past {
            Some(past) => {
                past.note_sent(facts);
                past.attempts
            }
            None => has_begun.into(),
        };
        facts.elapsed = self.record.elapsed();
        facts.gave_up = Some(stop);
        tracing::debug!(
            kind = %error.kind(),
            attempts = error.attempts(),
            stop = %stop,
            "request failed",
        );
        error
    }
}

#[inline]
fn list(headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let copied = |(name, value): (&HeaderName, &HeaderValue)| (name.clone(), value.clone());
    // Without the capacity, a list of two takes the room of four in each call that waits.
    let mut list = Vec::with_capacity(headers.len());
    list.extend(headers.iter().map(copied));
    list
}

/// Waits for `inner` until the deadline, and then polls it once more: a layer below that reads the
/// deadline now returns its own error, with the cause of its wait or with a status.
fn within<F: Future>(
    mut inner: Pin<&mut F>,
    deadline: Option<Instant>,
    timer: &mut Timer,
) -> impl Future<Output = Option<F::Output>> {
    poll_fn(move |cx| {
        if let Poll::Ready(output) = inner.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        ready!(timer.poll(deadline, cx));
        match inner.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        }
    })
}

const LENGTH: &str = "leave Content-Length out, or send the body with it";

/// Named as the cause of the wait after a request was handed on, if no layer below has recorded
/// another one.
const A_RESPONSE: &str = "a response";
