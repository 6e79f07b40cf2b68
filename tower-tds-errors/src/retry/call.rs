//! The state of one call between its attempts.

use std::borrow::Cow;
use std::mem;
use std::sync::Arc;

use http::request::Parts;
use http::{Request, Response};
use tokio::time::Instant;

use super::request::{Attempt, Replay};
use super::settings::Shared;
use super::state::{Repeats, RetryState};
use crate::classify::{RequestFacts, error_of, is_success};
use crate::clock::{self, DeadlineAt};
use crate::error::Error;
use crate::kind::{GiveUp, Kind, Sent};

/// One call: the request that its attempts send, its start, and its failures so far.
pub(super) struct Call<B, P> {
    shared: Arc<Shared<P>>,
    began: Instant,
    /// The head of the request, for the next attempt and for errors.
    head: Parts,
    /// The body of the next attempt. Without one there is no further attempt.
    body: Option<B>,
    /// Created at the first failure, because most calls have none.
    history: Option<Box<History>>,
}

struct History {
    state: RetryState,
    /// The failure before the current wait.
    failure: Option<Error>,
    /// The last failure before that one with a status.
    answer: Option<Error>,
}

/// The stage of a call at its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Readying,
    Calling,
}

// === impl Call ===

impl<B, P> Call<B, P> {
    #[inline]
    pub(super) fn new(shared: Arc<Shared<P>>, began: Instant, (head, body): (Parts, B)) -> Self {
        Self {
            shared,
            began,
            head,
            body: Some(body),
            history: None,
        }
    }

    /// The deadline for the response head. It is not kept, because callers move the future.
    #[inline]
    pub(super) fn deadline(&self) -> Option<Instant> {
        let settings = &self.shared.settings;
        settings.deadline(&self.head.extensions, self.began)
    }

    /// The body of the next attempt, if there is one.
    #[inline]
    pub(super) const fn body(&mut self) -> Option<B> {
        self.body.take()
    }

    /// Makes the request of the next attempt, and a copy of its body for one more.
    #[inline]
    pub(super) fn request(&mut self, body: B) -> Request<B>
    where
        P: Replay<B>,
    {
        let number = self
            .history
            .as_ref()
            .map_or(1, |history| history.state.attempts);
        let most = self.shared.settings.attempts.get();
        // One more than the attempts, because one is not counted.
        if most > 1 && number <= most {
            self.body = self.shared.replay.replay(&body);
        }
        let deadline = self.deadline();
        let mut request = Request::from_parts(self.head.clone(), body);
        // Layers below add headers, and the caller's map may have room for them.
        mem::swap(request.headers_mut(), &mut self.head.headers);
        let extensions = request.extensions_mut();
        if let Some(deadline) = deadline {
            extensions.insert(DeadlineAt(deadline));
        }
        if number > 1 {
            extensions.insert(Attempt(number));
        }
        request
    }

    /// Whether the response is a success of the first attempt: the short path of most calls.
    #[inline]
    pub(super) fn is_first_success<R>(&self, response: &Response<R>) -> bool {
        self.history.is_none() && is_success(response.status())
    }

    /// Returns a success with the number of its attempt. A response that no layer below has
    /// classified becomes an error by its head.
    pub(super) fn answered<R>(&mut self, mut response: Response<R>) -> Result<Response<R>, Error> {
        if !is_success(response.status()) {
            let request = RequestFacts::of(&self.head.headers, None);
            let error = error_of(&request, response.status(), response.headers(), b"");
            if let Some(error) = error {
                return Err(error);
            }
        }
        if let Some(history) = &self.history {
            let attempts = history.state.attempts;
            tracing::debug!(attempts, "request succeeded");
            response.extensions_mut().insert(Attempt(attempts));
        }
        Ok(response)
    }

    /// Returns the end of the wait before the next attempt, `None` for no wait, or the final error.
    pub(super) fn failed(&mut self, error: Error) -> Result<Option<Instant>, Error> {
        // An error that a retry layer below gave up is final, so nested retry layers do not
        // multiply attempts. If another layer settled it, the totals of the call are recorded below.
        let settled = error.gave_up();
        if settled.is_some() && error.elapsed().is_some() {
            return Err(error);
        }
        let now = clock::now();
        match self.after(&error, now) {
            Ok(end) => {
                if let Some(history) = &mut self.history {
                    let before = history.failure.replace(error);
                    let known = before.filter(|before| before.status().is_some());
                    history.answer = known.or(history.answer.take());
                }
                Ok(end)
            }
            Err(GiveUp::Deadline) if self.is_over() || settled == Some(GiveUp::Deadline) => {
                Err(self.ended(error))
            }
            Err(stop) => Err(self.note(error, stop, Stage::Calling)),
        }
    }

    fn after(&mut self, error: &Error, now: Instant) -> Result<Option<Instant>, GiveUp> {
        let left = self.deadline();
        let left = left.map(|end| end.saturating_duration_since(now));
        let settings = &self.shared.settings;
        let history = self
            .history
            .get_or_insert_with(|| Box::new(History::new(&self.head)));
        let wait = history
            .state
            .begin_retry(error, settings, self.body.is_some(), left)?;
        let end = now.checked_add(wait).ok_or(GiveUp::HintTooLong)?;
        tracing::debug!(
            kind = %error.kind(),
            attempt = history.state.attempts.saturating_sub(1),
            wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "attempt failed, trying again",
        );
        Ok((!wait.is_zero()).then_some(end))
    }

    pub(super) fn is_over(&self) -> bool {
        self.deadline().is_some_and(|end| end <= clock::now())
    }

    /// The error of a call at its deadline, if no layer below returned one.
    pub(super) fn late(&mut self, stage: Stage) -> Error {
        let mut error = Error::from_kind(Kind::Timeout);
        let facts = error.facts_mut();
        if stage == Stage::Readying {
            facts.sent = Sent::Never;
        }
        facts.waited_for = Some(stage.waits_for());
        self.ended(error)
    }

    /// The final error of a call whose last attempt ended with `error` at the deadline. An earlier
    /// failure takes its place if it has a status, or if the last attempt only waited.
    fn ended(&mut self, mut error: Error) -> Error {
        let is_over = self.is_over();
        let sent = error.sent();
        let waited_for = error.facts_mut().waited_for.take();
        let known = |error: &Error| error.status().is_some();
        if !known(&error)
            && let Some(history) = &mut self.history
        {
            let before = match history.failure.take() {
                Some(failure) if known(&failure) => Some(failure),
                failure => {
                    let unsent = failure.filter(|_| sent == Sent::Never);
                    history.answer.take().or(unsent)
                }
            };
            error = before.unwrap_or(error);
        }
        let facts = error.facts_mut();
        // A call that was rejected in good time waited for nothing.
        let passed = is_over.then(|| Stage::Calling.waits_for());
        facts.waited_for = waited_for.or(passed);
        if sent != Sent::Never {
            facts.sent = sent;
        }
        let mut error = self.note(error, GiveUp::Deadline, Stage::Calling);
        if sent == Sent::Never {
            // The last attempt sent nothing, so it is not counted.
            let attempts = error.attempts().saturating_sub(1);
            error.facts_mut().attempts = attempts;
        }
        error
    }

    /// The error of an attempt that cannot begin: the failure before it, or the service's own.
    pub(super) fn give_up(&mut self, stop: GiveUp, error: Option<Error>) -> Error {
        let failure = self.history.as_mut().and_then(|past| {
            past.state.take_back();
            past.failure.take()
        });
        match (failure, error) {
            (None, Some(error)) if error.gave_up().is_some() => self.note_request(error),
            (failure, error) => {
                let error = failure.or(error);
                let error = error.unwrap_or_else(|| Error::from_kind(Kind::InvalidRequest));
                self.note(error, stop, Stage::Readying)
            }
        }
    }

    /// Records the totals of the call, and why it ends.
    fn note(&self, error: Error, stop: GiveUp, stage: Stage) -> Error {
        let mut error = self.note_request(error);
        let elapsed = clock::now().saturating_duration_since(self.began);
        let facts = error.facts_mut();
        facts.attempts = match &self.history {
            Some(history) => {
                history.state.note_sent(facts);
                history.state.attempts
            }
            None => u32::from(stage == Stage::Calling),
        };
        facts.elapsed = Some(elapsed);
        facts.gave_up = Some(stop);
        tracing::debug!(
            kind = %error.kind(),
            attempts = error.attempts(),
            stop = %stop,
            "request failed",
        );
        error
    }

    fn note_request(&self, mut error: Error) -> Error {
        let facts = error.facts_mut();
        facts.note_request(&self.head.method, &self.head.uri);
        error
    }
}

// === impl Stage ===

impl Stage {
    /// The cause of the wait, if no layer below has recorded one.
    fn waits_for(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Readying => "the service below to be ready",
            Self::Calling => "a response",
        })
    }
}

// === impl History ===

impl History {
    fn new(head: &Parts) -> Self {
        let repeat = head.extensions.get().copied();
        Self {
            state: RetryState::of(Repeats::of(&head.method, repeat)),
            failure: None,
            answer: None,
        }
    }
}
