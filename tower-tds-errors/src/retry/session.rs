//! One logical request: its attempts so far, its copy, its clock.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tokio::time::Instant;
use tower_service::Service;

use super::attempt::{Attempt, Retried};
use super::kept::Kept;
use super::past::Past;
use super::replay::Replay;
use super::shared::Shared;
use super::verdict::{Again, Failed, Way, verdict};
use crate::clock;
use crate::error::Error;
use crate::guard::Bodies;
use crate::kind::Kind;
use crate::stop::Stop;

mod ending;

pub(super) struct Session<S, B, P> {
    shared: Arc<Shared<S, P>>,
    kept: Kept<B>,
    /// When the call first had to wait, or failed: one that does neither reads no clock.
    start: Option<Instant>,
    past: Option<Box<Past<S>>>,
}

// === impl Session ===

impl<S, B, P> Session<S, B, P> {
    #[inline]
    pub(super) const fn new(kept: Kept<B>, shared: Arc<Shared<S, P>>) -> Self {
        Self {
            shared,
            kept,
            start: None,
            past: None,
        }
    }

    /// When the deadline is, if there is one within reach of the clock.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        let own = self.kept.deadline;
        let start = self.start();
        let set = self.shared.policy.deadline;
        let set = set.and_then(|deadline| start.checked_add(deadline));
        set.into_iter().chain(own).min()
    }

    /// When the attempt that begins now is cut off.
    pub(super) fn attempt_end(&mut self) -> Option<Instant> {
        let deadline = self.deadline();
        let attempt = self.shared.policy.attempt;
        let attempt = attempt.and_then(|attempt| clock::now().checked_add(attempt));
        attempt.into_iter().chain(deadline).min()
    }

    /// Whether no attempt has failed yet.
    pub(super) const fn is_first(&self) -> bool {
        self.past.is_none()
    }

    /// Notes on a success what it took, if it took more than one attempt.
    pub(super) fn succeeded<R>(&mut self, response: &mut Response<R>) {
        if let Some(past) = &mut self.past {
            past.succeeded();
            let attempts = past.attempts;
            let elapsed = self.elapsed();
            tracing::debug!(attempts, "request succeeded");
            if let Some(counts) = &self.shared.policy.counts {
                counts.note_recovery();
            }
            let retried = Retried { attempts, elapsed };
            response.extensions_mut().insert(retried);
        }
    }

    /// Prepares the next attempt, or gives the error to end with.
    pub(super) fn failed(&mut self, error: Error) -> Result<(), Error> {
        match error.stopped_because() {
            // A rule has, at this very attempt. What the call took is still to be said.
            Some(Stop::Vetoed) if error.elapsed().is_none() => {
                return Err(self.note(error, Stop::Vetoed));
            }
            // A retry layer below has given up on it; twice the layers are not twice the attempts.
            Some(_) => return Err(error),
            None => {}
        }
        let now = clock::now();
        let again = match self.decide(&error, now) {
            Ok(again) => again,
            Err(stop) => return Err(self.note(error, stop)),
        };
        let crowded = error.kind() == Kind::ConnectionLimit;
        let bodies = self.shared.policy.bodies.as_ref().filter(|_| crowded);
        let freed = bodies.and_then(Bodies::freed);
        let past = self.past();
        tracing::debug!(
            kind = %error.kind(),
            attempt = past.attempts,
            wait_ms = u64::try_from(again.wait.as_millis()).unwrap_or(u64::MAX),
            "attempt failed, trying again",
        );
        past.push(error, again, now);
        past.freed = freed;
        Ok(())
    }

    /// When the wait for the end of a body is over, if there is such a wait.
    pub(super) fn freed_end(&mut self) -> Option<Instant> {
        self.past.as_ref()?.freed.as_ref()?;
        let longest = clock::now().checked_add(self.shared.policy.longest_wait);
        longest.into_iter().chain(self.deadline()).min()
    }

    pub(super) fn poll_freed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let freed = self.past.as_mut().and_then(|past| past.freed.as_mut());
        freed.map_or(Poll::Ready(()), |freed| freed.poll(cx))
    }

    /// When the wait that begins now is over, if there is one, unless the deadline is before.
    pub(super) fn wait_end(&mut self) -> Result<Option<Instant>, Error> {
        let now = clock::now();
        let wait = self.past().wait_at(now);
        let Some(end) = now.checked_add(wait) else {
            return Err(self.give_up(Stop::HintTooLong));
        };
        if self.deadline().is_some_and(|deadline| deadline <= end) {
            return Err(self.give_up(Stop::Deadline));
        }
        Ok((!wait.is_zero()).then_some(end))
    }

    fn decide(&mut self, error: &Error, now: Instant) -> Result<Again, Stop> {
        let left = self.deadline();
        let left = left.map(|end| end.saturating_duration_since(now));
        let (idempotent, spare) = (self.kept.idempotent(), self.kept.spare());
        let shared = Arc::clone(&self.shared);
        let past = self.past();
        let failed = Failed {
            kind: error.kind(),
            advice: error.advice(),
            sent: error.sent(),
            hint: error.retry_after(),
            waited: past.wait,
            attempt: past.counted,
            cured: past.cured,
            reuse: past.reuse,
            idempotent,
            spare,
            left,
        };
        let again = verdict(&failed, &shared.policy, &mut past.rng)?;
        if let (Way::Reused | Way::Paid, Some(budget)) = (again.way, &shared.policy.budget) {
            let price = budget.withdraw_at(self.kept.tape.parts(), now);
            self.past().price = Some(price.ok_or(Stop::Budget)?);
        }
        Ok(again)
    }

    fn past(&mut self) -> &mut Past<S> {
        let (policy, kept) = (&self.shared.policy, &self.kept);
        self.past
            .get_or_insert_with(|| Box::new(Past::new(policy.dice.session(), kept.reuse())))
    }

    fn start(&mut self) -> Instant {
        *self.start.get_or_insert_with(clock::now)
    }

    fn elapsed(&mut self) -> Duration {
        clock::now().saturating_duration_since(self.start())
    }
}

impl<S: Clone, B, P> Session<S, B, P> {
    /// Makes the service for the next attempt ready.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>>
    where
        S: Service<Request<B>>,
    {
        let Some(past) = &mut self.past else {
            // Nothing has failed, so nothing has to be made ready again.
            return Poll::Ready(Ok(()));
        };
        let service = &mut past.service;
        let service = service.get_or_insert_with(|| self.shared.instance());
        service.poll_ready(cx)
    }

    /// Makes the next attempt, by the service that was made ready.
    pub(super) fn call(&mut self) -> Result<S::Future, Error>
    where
        S: Service<Request<B>>,
        P: Replay<B>,
    {
        let attempted = self.attempt();
        // One of its headers was never valid.
        attempted.ok_or_else(|| self.give_up(Stop::NotReplayable))
    }

    fn attempt(&mut self) -> Option<S::Future>
    where
        S: Service<Request<B>>,
        P: Replay<B>,
    {
        let past = self.past.as_mut()?;
        let number = past.attempts.saturating_add(1);
        let after = past.failure.as_ref().map(Error::kind);
        // One more than the attempts, for the one that is not counted.
        let more = number <= self.shared.policy.attempts.get();
        let replay = more.then_some(&self.shared.replay);
        let request = self.kept.request(Attempt { number, after }, replay)?;
        past.sent();
        if let Some(counts) = &self.shared.policy.counts {
            counts.note_retry();
        }
        Some(past.service.as_mut()?.call(request))
    }
}
