//! State of one token source, as a value: the token, the request in flight, the last failure.
//!
//! Events go in, actions come out. This module does no I/O, reads no clock and spawns no task.
//!
//! Until its expiry a token is *valid*: *fresh* until its renewal is due, then *stale*. It is *doubted* if the service
//! has refused it and has not accepted it since; a doubted token stays in use. Its *generation* is its number in this
//! process, and a refusal of one generation has no effect on another. While calls may send a token without a read of
//! this state, the token is *settled*. One token request for all waiters is a *flight*, and flights are numbered too.
//!
//! A renewed token *rests* before it replaces one that is still good. If the clock of a gateway is behind that of the
//! issuer, the gateway refuses a token that was issued in its future.

use std::{mem, sync::Arc, time::Duration};

use tokio::time::Instant;

pub(crate) use self::lifetime::Lifetime;
pub use self::lifetime::RefreshPolicy;
use self::throttle::{Backoff, Refusals};
use crate::{
    clock::Timestamp,
    error::{Kind, TokenError},
    health::{Health, Phase},
    reply::{AccessToken, Fetched, Issued},
};

mod lifetime;
#[cfg(test)]
mod tests;
mod throttle;

/// State of one token source.
#[derive(Debug)]
pub(crate) struct State {
    policy: RefreshPolicy,
    /// Draws a number in `0.0..1.0`, for jitter.
    draw: fn() -> f64,
    /// The token in use, until its expiry is noticed.
    token: Option<Arc<Bearer>>,
    /// A token that rests. It replaces the token in use at the `renew_at` of that one, or earlier if that one is
    /// refused.
    next: Option<Arc<Bearer>>,
    /// Number of the newest token; zero before the first.
    generation: u64,
    /// How often in a row a renewal has brought the token in use again.
    repeats: u32,
    /// Number of the first refused token, if none was accepted since.
    refused_from: u64,
    in_flight: Option<Flight>,
    /// How many flights have begun.
    flights: u64,
    failure: Option<Failure>,
    backoff: Backoff,
    refusals: Refusals,
    /// When the last token came.
    succeeded_at: Option<Timestamp>,
    notices: Vec<Notice>,
}

/// A token, with its number and its times.
#[derive(Clone, Debug)]
pub(crate) struct Bearer {
    pub(crate) generation: u64,
    pub(crate) token: AccessToken,
    pub(crate) lifetime: Lifetime,
    /// When it was requested.
    sent: Timestamp,
}

/// Token in use at the start of a flight.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    bearer: Arc<Bearer>,
    is_doubted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    reason: Reason,
    began: Timestamp,
}

/// Last failure, until a success.
#[derive(Debug)]
struct Failure {
    error: TokenError,
    /// End of the backoff.
    until: Instant,
    /// When the first failure in a row happened.
    since: Timestamp,
    /// When a failure was logged last.
    logged_at: Timestamp,
}

/// Line for the log, emitted after the lock is released.
#[derive(Debug)]
pub(crate) enum Notice {
    /// Generation, reason, remaining life, and whether this process requested the token.
    Renewed(u64, Reason, Duration, bool),
    Recovered(Duration),
    Failed(TokenError, Reason),
    Refused(u64),
    Accepted(u64, Duration),
}

/// Why a token is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// There has been no token yet.
    Start,
    /// Renewal of a valid token by the policy.
    Schedule,
    /// Expiry of the last token.
    Expiry,
    /// Refusal of the token in use by the service.
    Refused,
}

/// An event of a token source.
#[derive(Debug)]
pub(crate) enum Event {
    /// A call needs a token.
    Needed,
    /// Time has passed.
    Timer,
    /// The flight has brought a token.
    Fetched(Issued),
    /// The flight has failed.
    Failed(TokenError),
    /// The flight has ended with its runtime, so nothing is known of its result.
    Lost,
    /// A call with the token of this number was accepted.
    Accepted(u64),
    /// A call with the token of this number was refused.
    Refused(u64),
}

/// Consequence of an event.
#[derive(Debug)]
pub(crate) enum Action {
    /// Send the token in use.
    Send,
    /// Start a request.
    Request,
    /// Wait for the request in flight.
    Join,
    /// Wait for the request in flight until this instant, then send the token in use.
    JoinUntil(Instant),
    /// Report this error: there is no token, and the endpoint is in its backoff.
    Fail(TokenError),
    /// Do nothing until this much time has passed.
    Sleep(Duration),
    /// Do nothing.
    Rest,
    /// Nothing to do: a newer token than the refused one is in use.
    Superseded,
    /// Send the refused token again after this time, because the clock of the service may be behind.
    SendAfter(Duration),
}

// === impl Notice ===

impl Notice {
    pub(crate) fn emit(self) {
        match self {
            Self::Renewed(generation, reason, life, is_own) => {
                tracing::info!(generation, ?reason, ?life, is_own, "token renewed");
            }
            Self::Recovered(down) => tracing::info!(?down, "token endpoint recovered"),
            Self::Failed(error, reason) => {
                tracing::warn!(%error, ?reason, "token request failed");
            }
            Self::Refused(generation) => {
                tracing::warn!(generation, "the service refuses the token");
            }
            Self::Accepted(generation, refused_for) => {
                tracing::info!(
                    generation,
                    ?refused_for,
                    "the service accepts the token again"
                );
            }
        }
    }
}

// === impl State ===

impl State {
    pub(crate) fn new(policy: RefreshPolicy, draw: fn() -> f64) -> Self {
        Self {
            policy,
            draw,
            token: None,
            next: None,
            generation: 0,
            repeats: 0,
            refused_from: 0,
            in_flight: None,
            flights: 0,
            failure: None,
            backoff: Backoff::default(),
            refusals: Refusals::default(),
            succeeded_at: None,
            notices: Vec::new(),
        }
    }

    /// Applies an event and returns what follows from it.
    pub(crate) fn on(&mut self, event: Event, now: Timestamp) -> Action {
        match event {
            Event::Needed => self.needed(now),
            Event::Timer => self.timer(now),
            Event::Fetched(token) => self.fetched(token, now),
            Event::Failed(error) => self.failed(&error, now),
            Event::Lost => {
                self.in_flight = None;
                Action::Rest
            }
            Event::Accepted(generation) => self.accepted(generation, now),
            Event::Refused(generation) => self.refused(generation, now),
        }
    }

    pub(crate) fn take_notices(&mut self) -> Vec<Notice> {
        mem::take(&mut self.notices)
    }

    /// Returns the number of the newest token; zero before the first.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// How many flights have begun. The last one may have ended.
    pub(crate) fn flights(&self) -> u64 {
        self.flights
    }

    /// Returns the number of the flight that has not ended.
    pub(crate) fn in_flight(&self) -> Option<u64> {
        self.in_flight.map(|_| self.flights)
    }

    /// Returns the token that may be sent.
    pub(crate) fn in_use_at(&self, now: Timestamp) -> Option<&Arc<Bearer>> {
        let mut tokens = self.token.iter().chain(&self.next);
        tokens.find(|token| token.lifetime.is_valid_at(now))
    }

    /// Returns the number of the token, if calls may send it without a look at this state.
    pub(crate) fn settled_at(&self, now: Timestamp) -> Option<u64> {
        let token = self.token.as_ref()?;
        let is_due = token.lifetime.renew_at.has_come_at(now);
        (!is_due && !self.refusals.awaits_acceptance()).then_some(token.generation)
    }

    /// Returns the token in use, for the choice between it and a stored one.
    pub(crate) fn current_at(&self, now: Timestamp) -> Option<Current> {
        Some(Current {
            bearer: Arc::clone(self.in_use_at(now)?),
            is_doubted: self.refusals.is_doubted(),
        })
    }

    pub(crate) fn phase_at(&self, now: Timestamp) -> Phase {
        match self.in_use_at(now) {
            Some(_) if self.refusals.is_doubted() => Phase::Doubted,
            Some(token) if token.lifetime.renew_at.has_come_at(now) => Phase::Stale,
            Some(_) => Phase::Fresh,
            None if self.generation == 0 => Phase::Absent,
            None => Phase::Expired,
        }
    }

    pub(crate) fn health_at(&self, now: Timestamp) -> Health {
        let token = self.in_use_at(now);
        let newest = self.next.as_ref().or(token);
        let due = newest.map_or(Duration::ZERO, |it| it.lifetime.renew_at.left_at(now));
        Health {
            phase: self.phase_at(now),
            generation: self.generation,
            life_left: token.map(|it| it.lifetime.expires_at.left_at(now)),
            last_error: self.failure.as_ref().map(|failure| failure.error.clone()),
            next_attempt: due.max(self.backoff_left_at(now)),
            waiting_for: self.in_flight.map(|it| it.began.age_at(now)),
            refused_for: token.and(self.refusals.doubted_for_at(now)),
            last_success: self.succeeded_at.map(|at| at.age_at(now)),
            endpoint: String::new(),
        }
    }

    fn needed(&mut self, now: Timestamp) -> Action {
        self.advance(now);
        if self.token.is_none() {
            return self.request_at(now);
        }
        let Some(flight) = self.in_flight.filter(|it| it.reason == Reason::Refused) else {
            return Action::Send;
        };
        let until = flight.began.checked_add(LONGEST_DELAY);
        match until.filter(|until| self.refusals.is_doubted() && !until.has_come_at(now)) {
            Some(until) => Action::JoinUntil(until.steady),
            None => Action::Send,
        }
    }

    /// Starts or joins a request for a call that has no token.
    fn request_at(&mut self, now: Timestamp) -> Action {
        if self.in_flight.is_some() {
            return Action::Join;
        }
        if let Some(error) = self.backoff_error_at(now) {
            return Action::Fail(error);
        }
        let first = self.generation == 0;
        self.begin(if first { Reason::Start } else { Reason::Expiry }, now)
    }

    fn begin(&mut self, reason: Reason, began: Timestamp) -> Action {
        self.flights += 1;
        self.in_flight = Some(Flight { reason, began });
        Action::Request
    }

    fn timer(&mut self, now: Timestamp) -> Action {
        self.advance(now);
        let (None, Some(token)) = (self.in_flight, &self.token) else {
            return Action::Rest;
        };
        let Lifetime {
            renew_at,
            expires_at,
        } = token.lifetime;
        // Under `OnExpiry` the next call requests a token, and the timer only ends the old one. No
        // backoff delays the end of a rest, which needs no endpoint.
        if renew_at == expires_at || self.next.is_some() {
            return Action::Sleep(renew_at.left_at(now));
        }
        let wait = renew_at.left_at(now).max(self.backoff_left_at(now));
        if !wait.is_zero() {
            return Action::Sleep(wait);
        }
        self.begin(Reason::Schedule, now)
    }

    fn fetched(&mut self, issued: Issued, now: Timestamp) -> Action {
        self.advance(now);
        let Issued { token, fetched } = issued;
        let draw = (self.draw)();
        let planned = Lifetime::plan_at(now, fetched.sent, fetched.life, self.policy, draw);
        let Some(lifetime) = planned else {
            let reason = "its token was expired on arrival, by the clock of this machine";
            return self.failed(&TokenError::new(Kind::Malformed(reason)), now);
        };
        let flight = self.in_flight.take();
        let reason = flight.map_or(Reason::Start, |flight| flight.reason);
        if let Some(failure) = self.failure.take() {
            let down = failure.since.age_at(now);
            self.notices.push(Notice::Recovered(down));
        }
        self.backoff.succeed();
        self.succeeded_at = Some(now);
        let mut new = Bearer {
            generation: self.generation + 1,
            token,
            lifetime,
            sent: fetched.sent,
        };
        if let Some(old) = self.token.as_ref().filter(|old| old.is_repeated_by(&new)) {
            new.generation = old.generation;
            self.repeats += 1;
            if self.repeats == REPEATS {
                new.lifetime.renew_at = new.lifetime.expires_at;
            }
            self.refusals.unchanged();
            self.token = Some(Arc::new(new));
            return Action::Rest;
        }
        self.repeats = 0;
        self.generation = new.generation;
        let life = new.lifetime.expires_at.left_at(now);
        let renewed = Notice::Renewed(new.generation, reason, life, fetched.is_own);
        self.notices.push(renewed);
        let is_doubted = self.refusals.is_doubted();
        let good = self.token.as_mut().filter(|_| !is_doubted);
        let rest = good.and_then(|old| Some((new.rest_at(now, old)?, old)));
        if let Some((until, old)) = rest {
            Arc::make_mut(old).lifetime.renew_at = until;
            self.next = Some(Arc::new(new));
        } else {
            self.replace(Some(Arc::new(new)));
        }
        Action::Rest
    }

    fn replace(&mut self, token: Option<Arc<Bearer>>) {
        self.token = token;
        self.refusals.replaced();
    }

    fn failed(&mut self, error: &TokenError, now: Timestamp) -> Action {
        let flight = self.in_flight.take();
        let reason = flight.map_or(Reason::Start, |flight| flight.reason);
        let before = self.failure.take();
        // Without credentials nothing was sent, and the provider may return them soon.
        let is_short = error.is_transient() || error.is_missing_credentials();
        let wait = self
            .backoff
            .fail(is_short, error.retry_after(), (self.draw)());
        let since = before.as_ref().map_or(now, |before| before.since);
        let error = error.failing_for(since.age_at(now)).with_retry_after(wait);
        let logged_at = before.filter(|before| {
            let is_alike = before.error.is_transient() == error.is_transient();
            is_alike && before.logged_at.age_at(now) < LOG_EVERY
        });
        let logged_at = logged_at.map_or_else(
            || {
                self.notices.push(Notice::Failed(error.clone(), reason));
                now
            },
            |before| before.logged_at,
        );
        self.failure = Some(Failure {
            error: error.clone(),
            until: now.steady.checked_add(wait).unwrap_or(now.steady),
            since,
            logged_at,
        });
        Action::Fail(error)
    }

    fn accepted(&mut self, generation: u64, now: Timestamp) -> Action {
        let is_current = self
            .token
            .as_ref()
            .is_some_and(|token| token.generation == generation);
        if is_current && let Some(refused_for) = self.refusals.accepted_at(now) {
            self.notices.push(Notice::Accepted(generation, refused_for));
        }
        Action::Rest
    }

    fn refused(&mut self, generation: u64, now: Timestamp) -> Action {
        self.advance(now);
        match &self.token {
            // The token has expired since it was sent, so a resend needs a new one.
            None => {
                return match self.request_at(now) {
                    Action::Fail(_) => Action::Rest,
                    action => action,
                };
            }
            Some(token) if token.generation != generation => return Action::Superseded,
            Some(_) => {}
        }
        if !self.refusals.awaits_acceptance() {
            self.refused_from = generation;
            self.notices.push(Notice::Refused(generation));
        }
        if let Some(next) = self.next.take() {
            self.refusals.refused_at(now);
            self.replace(Some(next));
            return Action::Superseded;
        }
        let may_refresh = self.refusals.refused_at(now);
        if self.in_flight.is_some() {
            return Action::Join;
        }
        if !may_refresh || !self.backoff_left_at(now).is_zero() {
            let successor = self
                .token
                .as_ref()
                .filter(|_| generation > self.refused_from);
            let age = successor.map(|token| token.sent.age_at(now));
            return match age.filter(|age| *age < REST) {
                Some(age) => Action::SendAfter(age.max(BEHIND)),
                None => Action::Rest,
            };
        }
        self.refusals.charge_at(now);
        self.begin(Reason::Refused, now)
    }

    /// Returns the time that is left of the backoff.
    fn backoff_left_at(&self, now: Timestamp) -> Duration {
        let failure = self.failure.as_ref();
        failure.map_or(Duration::ZERO, |failure| {
            failure.until.saturating_duration_since(now.steady)
        })
    }

    /// Returns the last error, while its backoff lasts.
    fn backoff_error_at(&self, now: Timestamp) -> Option<TokenError> {
        let failure = self.failure.as_ref()?;
        let wait = failure.until.checked_duration_since(now.steady)?;
        let error = failure.error.failing_for(failure.since.age_at(now));
        (!wait.is_zero()).then(|| error.with_retry_after(wait))
    }

    /// Ends the rest of the next token, and a token that has expired.
    fn advance(&mut self, now: Timestamp) {
        let is_over = |old: &Arc<Bearer>| old.lifetime.renew_at.has_come_at(now);
        if self.token.as_ref().is_some_and(is_over)
            && let Some(next) = self.next.take()
            // The old token may outlive the new one.
            && next.lifetime.is_valid_at(now)
        {
            self.replace(Some(next));
        }
        self.token.take_if(|token| !token.lifetime.is_valid_at(now));
    }
}

// === impl Bearer ===

impl Bearer {
    /// Whether the endpoint has returned this token again, with no longer life.
    fn is_repeated_by(&self, new: &Self) -> bool {
        let end = self.lifetime.expires_at.checked_add(ROUNDING);
        self.token.header() == new.token.header()
            && end.is_some_and(|end| new.lifetime.expires_at.wall <= end.wall)
    }

    /// Returns the end of this token's rest beside a token that is still good; `None` if it needs no
    /// rest.
    fn rest_at(&self, now: Timestamp, old: &Self) -> Option<Timestamp> {
        let rest = REST.checked_sub(self.sent.age_at(now))?;
        let left = |token: &Self| token.lifetime.expires_at.left_at(now);
        let rest = rest.min(left(old).min(left(self)) / 10);
        now.checked_add(rest).filter(|_| !rest.is_zero())
    }
}

// === impl Current ===

impl Current {
    /// Whether a token from a store is preferred to the token in use, if there is one.
    ///
    /// If the token in use is doubted, only one that was requested at the same time or later replaces
    /// it, so that a store cannot bring back an older token.
    pub(crate) fn is_worse_than(current: Option<&Self>, other: &Issued, now: Timestamp) -> bool {
        let Fetched { sent, life, .. } = other.fetched;
        let expires_at = sent.checked_add(life);
        let left = expires_at.map_or(Duration::ZERO, |it| it.left_at(now));
        let current = current.filter(|it| it.bearer.lifetime.is_valid_at(now));
        let Some(Self { bearer, is_doubted }) = current else {
            return !left.is_zero();
        };
        bearer.token.header() != other.token.header()
            && if *is_doubted {
                !left.is_zero() && sent.wall >= bearer.sent.wall
            } else {
                left > bearer.lifetime.expires_at.left_at(now)
            }
    }
}

/// Longest delay of a call by a doubted token, counted from the start of the refresh.
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// Longest rest of a new token, counted from its request, unless a tenth of what is left of either token
/// is shorter.
const REST: Duration = Duration::from_secs(60);
/// Shortest wait before a young token that was refused is sent again. Above this the wait is the token's age, so the
/// age doubles until the next attempt.
const BEHIND: Duration = Duration::from_secs(2);
/// How often in a row a renewal may bring the same token, as from servers that return one until it
/// expires. After that, the source waits for the expiry. With the first request these are four for each
/// token.
const REPEATS: u32 = 3;
/// Replies give the life in whole seconds, so the same expiry differs by a second or two.
const ROUNDING: Duration = Duration::from_secs(2);
/// Time between two log lines of a failure that continues.
const LOG_EVERY: Duration = Duration::from_secs(60);
