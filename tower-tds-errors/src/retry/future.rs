//! One call: readiness, attempts and sleeps under one deadline.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Extensions, Request, Response, Version};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::budget::Spending;
use super::replay::Replay;
use super::request::{Attempt, Due, Retried, SeenTo, Until};
use super::saved::{Asked, Saved};
use super::state::{Repeats, RetryState};
use super::{Settings, Shared, context};
use crate::classify::{Answer, is_success};
use crate::clock::{self, Timer};
use crate::error::{Error, Facts};
use crate::give_up::GiveUp;
use crate::kind::{Kind, Sent};

pin_project! {
    /// The future of [`Retry`](crate::Retry).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the wait or the attempt that is under way, and nothing is sent after.
    pub struct RetryFuture<S, B, P>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S::Future>,
        #[pin]
        timer: Timer,
        // Makes all attempts. Between them it holds nothing.
        service: S,
        call: Call<B, P>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        // ## Readying => (Calling | done)
        Readying,
        // ## Calling => (Sleeping | done)
        Calling {
            #[pin]
            attempt: F,
        },
        // ## Sleeping => (Readying | done)
        // The attempt was dropped on the way here, and with it what it held.
        Sleeping,
    }
}

/// One call: its request, its deadline, and what has failed so far.
pub(super) struct Call<B, P> {
    shared: Arc<Shared<P>>,
    due: Due,
    /// Until the first attempt.
    request: Option<Request<B>>,
    /// From the first attempt on.
    copy: Option<Copied<B>>,
    /// From the first failure on; most calls have none.
    past: Option<Box<Past>>,
}

/// The request as the next attempt will send it, or what its error needs if there is none.
struct Copied<B> {
    saved: Saved,
    asked: Asked,
    /// The second copy; without it there is no other attempt.
    body: Option<B>,
    extensions: Extensions,
    version: Version,
    repeats: Repeats,
}

struct Past {
    state: RetryState,
    spending: Spending,
    /// The failure that is being waited on.
    failure: Option<Error>,
}

// === impl RetryFuture ===

impl<S, B, P> RetryFuture<S, B, P>
where
    S: Service<Request<B>>,
{
    #[inline]
    pub(super) fn new(service: S, call: Call<B, P>) -> Self {
        Self {
            state: State::Readying,
            timer: Timer::new(),
            service,
            call,
        }
    }
}

impl<S, B, P, R> Future for RetryFuture<S, B, P>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<Error>,
    P: Replay<B>,
{
    type Output = Result<Response<R>, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut this = self.as_mut().project();
            match this.state.as_mut().project() {
                StateProj::Readying => {
                    match this.service.poll_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => {
                            return Poll::Ready(Err(this.call.not_ready(error.into())));
                        }
                        Poll::Pending => return self.poll_waiting(cx),
                    }
                    // Nothing is sent after the deadline.
                    if this.call.due.is_set || this.timer.is_set() {
                        if this.call.is_over() {
                            return Poll::Ready(Err(this.call.late_unsent()));
                        }
                        this.timer.set(None);
                    }
                    let service = this.service;
                    let attempt = this.call.send(|request| service.call(request))?;
                    this.state.set(State::Calling { attempt });
                }
                StateProj::Calling { attempt } => match attempt.poll(cx) {
                    Poll::Ready(Ok(response)) if this.call.is_first_success(&response) => {
                        return Poll::Ready(Ok(response));
                    }
                    polled @ (Poll::Ready(_) | Poll::Pending) => {
                        let polled = polled.map_err(Into::into);
                        if let Some(response) = ready!(self.as_mut().poll_after(polled, cx))? {
                            return Poll::Ready(Ok(response));
                        }
                    }
                },
                StateProj::Sleeping => {
                    ready!(self.as_mut().poll_sleeping(cx))?;
                    self.as_mut().project().state.set(State::Readying);
                }
            }
        }
    }
}

impl<S, B, P, R> RetryFuture<S, B, P>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<Error>,
    P: Replay<B>,
{
    /// Goes on where the service below is not ready: until the deadline.
    #[cold]
    fn poll_waiting(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<R>, Error>> {
        let mut this = self.project();
        if let Some(known) = this.call.known_at_the_last() {
            return Poll::Ready(Err(known));
        }
        if !this.timer.is_set() {
            this.timer.as_mut().set(this.call.due.head);
        }
        ready!(this.timer.poll(cx));
        Poll::Ready(Err(this.call.late_unsent()))
    }

    /// Goes on after an attempt was polled: with its response, or else towards another attempt.
    #[cold]
    fn poll_after(
        mut self: Pin<&mut Self>,
        mut polled: Poll<Result<Response<R>, Error>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Response<R>>, Error>> {
        let mut this = self.as_mut().project();
        if polled.is_pending() {
            if let Some(known) = this.call.known_at_the_last() {
                return Poll::Ready(Err(known));
            }
            if !this.timer.is_set() {
                this.timer.as_mut().set(this.call.attempt_end());
            }
            ready!(this.timer.as_mut().poll(cx));
            // Whoever below knows a status says so now. What is missing of its body is only text.
            if let StateProj::Calling { attempt } = this.state.as_mut().project() {
                polled = context::last_poll(|| attempt.poll(cx)).map_err(Into::into);
            }
        }
        let failed = match polled {
            Poll::Ready(answer) => match answer.and_then(|response| this.call.answered(response)) {
                Ok(response) => return Poll::Ready(Ok(Some(response))),
                Err(error) => this.call.failed(error),
            },
            Poll::Pending => this.call.cut_off(),
        };
        // Before the wait, so that it holds nothing.
        this.state.set(State::Sleeping);
        let end = failed?;
        this.timer.set(end);
        Poll::Ready(Ok(None))
    }

    fn poll_sleeping(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut this = self.project();
        if this.timer.is_set() && this.timer.as_mut().poll(cx).is_pending() {
            if let Some(known) = this.call.known_at_the_last() {
                return Poll::Ready(Err(known));
            }
            if this.timer.has_clock() {
                return Poll::Pending;
            }
            // Outside a runtime nobody would wake it.
            return Poll::Ready(Err(this.call.give_up(GiveUp::NotReady)));
        }
        // Set for readiness only if that has to be waited for.
        let end = this.timer.is_set().then_some(this.call.due.head).flatten();
        this.timer.set(end);
        Poll::Ready(Ok(()))
    }
}

impl<S, B, P> fmt::Debug for RetryFuture<S, B, P>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryFuture").finish_non_exhaustive()
    }
}

// === impl Call ===

impl<B, P> Call<B, P> {
    #[inline]
    pub(super) fn new(request: Request<B>, shared: Arc<Shared<P>>, due: Due) -> Self {
        Self {
            shared,
            due,
            request: Some(request),
            copy: None,
            past: None,
        }
    }

    /// Makes an attempt, after a copy for the next one.
    #[inline]
    fn send<T>(&mut self, call: impl FnOnce(Request<B>) -> T) -> Result<T, Error>
    where
        P: Replay<B>,
    {
        let Some(mut request) = self.request.take() else {
            return self.send_again(call);
        };
        if let Some(until) = self.due.body {
            request.extensions_mut().insert(Until(until));
        }
        let more = self.shared.settings.attempts.get() > 1;
        let copy = Copied::new(&request, more.then_some(&self.shared.replay));
        let asked = copy.asked;
        self.copy = Some(copy);
        Ok(context::calling(asked, request, call))
    }

    #[cold]
    fn send_again<T>(&mut self, call: impl FnOnce(Request<B>) -> T) -> Result<T, Error>
    where
        P: Replay<B>,
    {
        let (Some(past), Some(copy)) = (&mut self.past, &mut self.copy) else {
            return Err(self.give_up(GiveUp::NotReplayable));
        };
        let number = past.state.attempts();
        let after = past.failure.as_ref().map(Error::kind);
        // One more than the attempts, for the one that is not counted.
        let more = number <= self.shared.settings.attempts.get();
        let replay = more.then_some(&self.shared.replay);
        let Some(request) = copy.request(Attempt { number, after }, replay) else {
            // One of its headers was never valid.
            return Err(self.give_up(GiveUp::NotReplayable));
        };
        past.spending.sent();
        if let Some(counts) = &self.shared.settings.counts {
            counts.note_retry();
        }
        Ok(context::calling(copy.asked, request, call))
    }

    /// Whether the response is all that there is to say: most are.
    #[inline]
    fn is_first_success<R>(&self, response: &Response<R>) -> bool {
        self.past.is_none() && self.due.body.is_none() && is_success(response.status())
    }

    /// The response of a success, with what it took; or the error that the head of another means,
    /// which comes where nothing below has read it.
    fn answered<R>(&mut self, mut response: Response<R>) -> Result<Response<R>, Error> {
        if !is_success(response.status()) {
            let asked = self.copy.as_ref().map_or(Asked::NOTHING, |copy| copy.asked);
            let answer = Answer::new(response.status(), response.headers()).under(asked);
            if let Some(error) = answer.error() {
                return Err(error);
            }
        }
        let seen_to = response.extensions_mut().remove::<SeenTo>().is_some();
        if self.due.body.is_some() && !seen_to {
            let mut error = Error::new(Kind::InvalidRequest, UNGUARDED).with_advice(GUARD);
            error.facts_mut().sent = Sent::Answered;
            return Err(error);
        }
        if let Some(past) = &mut self.past {
            past.spending.succeeded();
            let attempts = past.state.attempts();
            let elapsed = self.elapsed();
            tracing::debug!(attempts, "request succeeded");
            if let Some(counts) = &self.shared.settings.counts {
                counts.note_recovery();
            }
            let retried = Retried { attempts, elapsed };
            response.extensions_mut().insert(retried);
        }
        Ok(response)
    }

    /// When the wait for the next attempt is over, or the error to end with.
    fn failed(&mut self, error: Error) -> Result<Option<Instant>, Error> {
        // A layer below has forbidden it at this very attempt: what the call took is still to be said.
        // Any other was settled by a retry below; twice the layers are not twice the attempts.
        if error
            .gave_up()
            .is_some_and(|settled| settled != GiveUp::Forbidden || error.elapsed().is_some())
        {
            return Err(error);
        }
        let now = clock::now();
        match self.after(&error, now) {
            Ok(end) => {
                if let Some(past) = &mut self.past {
                    past.failure = Some(error);
                }
                Ok(end)
            }
            Err(stop) => Err(self.note(error, stop)),
        }
    }

    fn after(&mut self, error: &Error, now: Instant) -> Result<Option<Instant>, GiveUp> {
        let left = self.due.head.map(|end| end.saturating_duration_since(now));
        let settings = &self.shared.settings;
        let copy = self.copy.as_ref().ok_or(GiveUp::NotReplayable)?;
        let past = self
            .past
            .get_or_insert_with(|| Box::new(Past::new(copy.repeats, settings)));
        let again = past
            .state
            .after(error, settings, copy.body.is_some(), left)?;
        let end = now.checked_add(again.wait).ok_or(GiveUp::HintTooLong)?;
        let (budget, authority) = (settings.budget.as_ref(), copy.saved.authority());
        past.spending.pay(budget, authority, again.costs, now)?;
        tracing::debug!(
            kind = %error.kind(),
            attempt = past.state.attempts(),
            wait_ms = u64::try_from(again.wait.as_millis()).unwrap_or(u64::MAX),
            "attempt failed, trying again",
        );
        past.state.note(error, again);
        Ok((!again.wait.is_zero()).then_some(end))
    }

    /// When the attempt that begins now is cut off.
    fn attempt_end(&self) -> Option<Instant> {
        let attempt = self.shared.settings.attempt;
        let attempt = attempt.and_then(|attempt| clock::now().checked_add(attempt));
        attempt.into_iter().chain(self.due.head).min()
    }

    fn is_over(&self) -> bool {
        self.due.head.is_some_and(|end| end <= clock::now())
    }

    /// What follows from the end of an attempt's time, where no answer has come.
    fn cut_off(&mut self) -> Result<Option<Instant>, Error> {
        if !self.is_over() {
            let error = Error::build(Facts::new(Kind::Timeout), None);
            return self.failed(error);
        }
        let failure = self.past.as_mut().and_then(|past| past.failure.take());
        let mut error = match failure {
            // What is known stays known.
            Some(answer) if answer.status().is_some() => answer,
            _ => Error::build(Facts::new(Kind::Timeout), None),
        };
        let facts = error.facts_mut();
        facts.sent = Sent::Unknown;
        facts.waited_for = Some(Cow::Borrowed("an answer"));
        Err(self.note(error, GiveUp::Deadline))
    }

    /// The error of a call whose deadline has passed while the service below was not ready.
    fn late_unsent(&mut self) -> Error {
        let waits = self.shared.settings.waits.as_ref();
        let waits = waits.map_or(
            Cow::Borrowed("a token, a permit, or another layer below"),
            |waits| waits(),
        );
        let mut error = self.unmended().unwrap_or_else(|| {
            let mut facts = Facts::new(Kind::Timeout);
            facts.sent = Sent::Never;
            Error::build(facts, None)
        });
        error.facts_mut().waited_for = Some(waits);
        self.note(error, GiveUp::Deadline)
    }

    /// The error for a service that did not become ready.
    fn not_ready(&mut self, error: Error) -> Error {
        let error = match self.unmended() {
            Some(failure) => failure,
            None if error.gave_up().is_some() => return error,
            None => error,
        };
        self.note(error, GiveUp::NotReady)
    }

    /// The error for a retry that cannot begin: the failure that it was to mend.
    fn give_up(&mut self, stop: GiveUp) -> Error {
        let failure = self.unmended();
        let error = failure.unwrap_or_else(|| Error::build(Facts::new(Kind::InvalidRequest), None));
        self.note(error, stop)
    }

    /// What has failed, for a retry above that has no more time.
    #[cold]
    fn known_at_the_last(&mut self) -> Option<Error> {
        let known = context::is_last_poll() && self.past.as_ref()?.failure.is_some();
        known.then(|| self.give_up(GiveUp::Deadline))
    }

    /// The failure that no attempt has followed after all.
    fn unmended(&mut self) -> Option<Error> {
        let past = self.past.as_mut()?;
        let failure = past.failure.take()?;
        past.state.take_back();
        Some(failure)
    }

    /// Notes what the call took and why it ends.
    fn note(&mut self, mut error: Error, stop: GiveUp) -> Error {
        if let Some(copy) = &self.copy {
            copy.saved.note(&mut error);
        } else if let Some(request) = &self.request {
            error
                .facts_mut()
                .note_request(request.method(), request.uri());
        }
        let elapsed = self.elapsed();
        let sent = u32::from(self.copy.is_some());
        let facts = error.facts_mut();
        facts.attempts = self
            .past
            .as_ref()
            .map_or(sent, |past| past.state.attempts());
        if let Some(past) = &mut self.past {
            facts.history = past.state.take_kinds();
        }
        facts.elapsed = Some(elapsed);
        facts.gave_up = Some(stop);
        if let Some(counts) = &self.shared.settings.counts {
            counts.note_stop(stop);
        }
        tracing::debug!(
            kind = %error.kind(),
            attempts = error.attempts(),
            stop = %stop,
            "request failed",
        );
        error
    }

    fn elapsed(&self) -> std::time::Duration {
        let now = clock::now();
        now.saturating_duration_since(self.due.call.unwrap_or(now))
    }
}

// === impl Copied ===

impl<B> Copied<B> {
    /// Keeps all of a request, if its body can be sent twice and if that is `wanted`.
    #[inline]
    fn new<P: Replay<B>>(request: &Request<B>, wanted: Option<&P>) -> Self {
        let (saved, asked) = Saved::head(request);
        let body = wanted.and_then(|replay| replay.replay(request.body()));
        Self {
            saved,
            asked,
            extensions: if body.is_some() {
                request.extensions().clone()
            } else {
                Extensions::new()
            },
            body,
            version: request.version(),
            repeats: Repeats::of(request.method(), request.extensions()),
        }
    }

    /// The request of an attempt, which can be sent once more if that is `wanted`.
    fn request<P: Replay<B>>(
        &mut self,
        attempt: Attempt,
        wanted: Option<&P>,
    ) -> Option<Request<B>> {
        let mut request = self.saved.request(self.body.take()?)?;
        self.body = wanted.and_then(|replay| replay.replay(request.body()));
        *request.version_mut() = self.version;
        *request.extensions_mut() = self.extensions.clone();
        request.extensions_mut().insert(attempt);
        Some(request)
    }
}

// === impl Past ===

impl Past {
    fn new(repeats: Repeats, settings: &Settings) -> Self {
        Self {
            state: RetryState::of(repeats, settings.dice.session()),
            spending: Spending::default(),
            failure: None,
        }
    }
}

const UNGUARDED: &str = "its deadline bounds the whole body, and no layer below sees to that";

const GUARD: &str = "put a GuardLayer over ClassifyLayer, or leave the body out of the deadline";
