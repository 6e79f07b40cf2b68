//! One logical request: its attempts so far, its copy, its clock.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use http::{Method, Request, Response, Uri};
use tokio::time::Instant;

use super::attempt::{Attempt, Retried};
use super::layer::Policy;
use super::replay::Replay;
use super::verdict::{Cured, Failed, Idempotent, Spare, verdict};
use crate::clock;
use crate::error::Error;
use crate::kind::Kind;
use crate::kind::table::Advice;
use crate::stop::Stop;

pub(super) struct Session<B, P> {
    policy: Arc<Policy>,
    replay: P,
    method: Method,
    uri: Uri,
    start: Instant,
    attempt: u32,
    cured: Cured,
    /// The request as the next attempt will send it.
    copy: Option<Request<B>>,
    /// Made by the first failure; most requests have none.
    rng: Option<Rng>,
    /// The failure that is being waited on.
    failure: Option<Error>,
}

// === impl Session ===

impl<B, P: Replay<B>> Session<B, P> {
    pub(super) fn new(policy: Arc<Policy>, replay: P, request: &Request<B>) -> Self {
        let mut session = Self {
            policy,
            replay,
            method: request.method().clone(),
            uri: request.uri().clone(),
            start: clock::now(),
            attempt: 1,
            cured: Cured::No,
            copy: None,
            rng: None,
            failure: None,
        };
        session.keep(request);
        session
    }

    /// When the deadline is, if there is one within reach of the clock.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.start.checked_add(self.policy.deadline?)
    }

    /// Notes on a success what it took, if it took more than one attempt.
    pub(super) fn succeeded<R>(&self, response: &mut Response<R>) {
        if self.attempt > 1 {
            response.extensions_mut().insert(Retried {
                attempts: self.attempt,
                elapsed: self.elapsed(),
            });
        }
    }

    /// The wait before the next attempt, or the error to end with.
    pub(super) fn failed(&mut self, mut error: Error) -> Result<Duration, Error> {
        // A retry layer below has given up on it; twice the layers are not twice the attempts.
        if error.stopped_because().is_some() {
            return Err(error);
        }
        let failed = Failed {
            kind: error.kind(),
            sent: error.sent(),
            hint: error.retry_after(),
            attempt: self.attempt,
            cured: self.cured,
            idempotent: if self.method.is_idempotent() {
                Idempotent::Yes
            } else {
                Idempotent::No
            },
            spare: if self.copy.is_some() {
                Spare::Kept
            } else {
                Spare::None
            },
            left: self
                .deadline()
                .map(|end| end.saturating_duration_since(clock::now())),
        };
        let rng = self.rng.get_or_insert_with(|| self.policy.dice.session());
        match verdict(&failed, &self.policy, rng) {
            Ok(wait) => {
                if error.kind().advice() == Advice::Once {
                    self.cured = Cured::Yes;
                }
                tracing::debug!(
                    kind = %error.kind(),
                    attempt = self.attempt,
                    wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                    "attempt failed, trying again",
                );
                self.failure = Some(error);
                Ok(wait)
            }
            Err(stop) => {
                self.note(&mut error, stop);
                Err(error)
            }
        }
    }

    /// The request of the next attempt. There is one whenever a wait was given.
    pub(super) fn next(&mut self) -> Option<Request<B>> {
        let mut request = self.copy.take()?;
        self.attempt = self.attempt.saturating_add(1);
        self.keep(&request);
        let number = self.attempt;
        request.extensions_mut().insert(Attempt { number });
        Some(request)
    }

    /// The error for a service that did not become ready again.
    pub(super) fn not_ready(&mut self, mut error: Error) -> Error {
        error.set_earlier(self.failure.take());
        self.note(&mut error, Stop::NotReady);
        error
    }

    /// The error for an attempt that the deadline cuts off.
    pub(super) fn cut_off(&mut self) -> Error {
        let mut error = Error::new(Kind::Timeout, DEADLINE);
        error.set_earlier(self.failure.take());
        self.note(&mut error, Stop::Deadline);
        error
    }

    /// The error for a wait that the deadline cuts off: the failure that was waited on.
    pub(super) fn out_of_time(&mut self) -> Error {
        let Some(mut error) = self.failure.take() else {
            return self.cut_off();
        };
        self.note(&mut error, Stop::Deadline);
        error
    }

    fn keep(&mut self, request: &Request<B>) {
        if self.attempt >= self.policy.attempts.get() {
            return;
        }
        self.copy = self.replay.replay(request.body()).map(|body| {
            let mut copy = Request::new(body);
            *copy.method_mut() = request.method().clone();
            *copy.uri_mut() = request.uri().clone();
            *copy.version_mut() = request.version();
            *copy.headers_mut() = request.headers().clone();
            *copy.extensions_mut() = request.extensions().clone();
            copy
        });
    }

    fn note(&self, error: &mut Error, stop: Stop) {
        let facts = error.facts_mut();
        facts.note_request(&self.method, &self.uri);
        facts.attempts = self.attempt;
        facts.elapsed = Some(self.elapsed());
        facts.stop = Some(stop);
    }

    fn elapsed(&self) -> Duration {
        clock::now().saturating_duration_since(self.start)
    }
}

const DEADLINE: &str = "the deadline of the retry layer passed";
