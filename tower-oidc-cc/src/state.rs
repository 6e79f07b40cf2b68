//! The state of one token source, as a value: the token, the request in flight, the last failure.
//!
//! Events go in, actions come out. There is no I/O, no clock and no task in here.
//!
//! A token is *valid* until its expiry. A valid token is *fresh* until its renewal is due, and then
//! *stale*. It is *doubted* if the service has refused it and has not accepted it since. A doubted
//! token stays in use. The *generation* of a token is its number in this process. A refusal of one
//! generation has no effect on another. A token is *settled* while calls may send it without a read of
//! this state.

use std::time::Duration;

use tokio::time::Instant;

pub(crate) use self::lifetime::Lifetime;
pub use self::lifetime::RefreshPolicy;
use self::throttle::{Backoff, Refusals};
use crate::{Health, TokenError, clock::Timestamp, error::Kind, health::Phase};

mod lifetime;
#[cfg(test)]
mod tests;
mod throttle;

/// The state of one token source.
#[derive(Debug)]
pub(crate) struct State {
    policy: RefreshPolicy,
    /// Draws a number in `0.0..1.0`, for jitter.
    draw: fn() -> f64,
    /// The newest token, until its expiry is noticed.
    token: Option<Token>,
    /// The number of the newest token; zero before the first.
    generation: u64,
    /// The request in flight: its reason and its start.
    in_flight: Option<(Reason, Timestamp)>,
    failure: Option<Failure>,
    backoff: Backoff,
    refusals: Refusals,
    /// When the last token came.
    succeeded_at: Option<Timestamp>,
    notices: Vec<Notice>,
}

/// The token in use.
#[derive(Debug)]
struct Token {
    generation: u64,
    /// When it was requested.
    sent: Timestamp,
    lifetime: Lifetime,
}

/// The last failure, until a success.
#[derive(Debug)]
struct Failure {
    error: TokenError,
    /// The end of the backoff.
    until: Instant,
    /// When the first failure in a row happened.
    since: Timestamp,
    /// When a failure was logged last.
    logged_at: Timestamp,
}

/// A line for the log, emitted outside of the lock.
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
    /// The policy renews a valid token.
    Schedule,
    /// The last token has expired.
    Expiry,
    /// The service has refused the token in use.
    Refused,
}

/// The times and the origin of a token that was just fetched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetched {
    /// The time of the token request. The life counts from it, because the server's count began later.
    pub(crate) sent: Timestamp,
    pub(crate) life: Duration,
    /// Whether this process requested it; otherwise it comes from a store.
    pub(crate) is_own: bool,
}

/// An event of a token source.
#[derive(Debug)]
pub(crate) enum Event {
    /// A call needs a token.
    Needed,
    /// Time has passed.
    Timer,
    /// A request has brought a token.
    Fetched(Fetched),
    /// A request has failed.
    Failed(TokenError),
    /// A call with the token of this number was accepted.
    Accepted(u64),
    /// A call with the token of this number was refused.
    Refused(u64),
}

/// The consequence of an event.
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
    /// Use the token that came, under this number.
    Use(u64, Lifetime),
    /// A newer token than the refused one is in use.
    Superseded,
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
            generation: 0,
            in_flight: None,
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
            Event::Accepted(generation) => self.accepted(generation, now),
            Event::Refused(generation) => self.refused(generation, now),
        }
    }

    pub(crate) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// The number of the newest token; zero before the first.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The number and the life of the token that may be sent.
    pub(crate) fn valid_at(&self, now: Timestamp) -> Option<(u64, Lifetime)> {
        let token = self.token.as_ref()?;
        let is_valid = token.lifetime.is_valid_at(now);
        is_valid.then_some((token.generation, token.lifetime))
    }

    /// The number of the token, if calls may send it without a look at this state.
    pub(crate) fn settled_at(&self, now: Timestamp) -> Option<u64> {
        let token = self.token.as_ref()?;
        let is_due = token.lifetime.renew_at.has_come_at(now);
        (!is_due && !self.refusals.awaits_acceptance()).then_some(token.generation)
    }

    /// Whether a token from a store is preferred to the token in use.
    ///
    /// A doubted token is replaced only by a token that was requested at the same time or later, so
    /// that a store cannot bring back an older token.
    pub(crate) fn prefers_at(&self, now: Timestamp, other: &Fetched) -> bool {
        let Some(expires_at) = other.sent.checked_add(other.life) else {
            return false;
        };
        let left = expires_at.left_at(now);
        match self
            .token
            .as_ref()
            .filter(|it| it.lifetime.is_valid_at(now))
        {
            None => !left.is_zero(),
            Some(token) if self.refusals.is_doubted() => {
                !left.is_zero() && other.sent.wall >= token.sent.wall
            }
            Some(token) => left > token.lifetime.expires_at.left_at(now),
        }
    }

    pub(crate) fn phase_at(&self, now: Timestamp) -> Phase {
        match &self.token {
            Some(token) if token.lifetime.is_valid_at(now) => {
                if self.refusals.is_doubted() {
                    Phase::Doubted
                } else if token.lifetime.renew_at.has_come_at(now) {
                    Phase::Stale
                } else {
                    Phase::Fresh
                }
            }
            None if self.generation == 0 => Phase::Absent,
            Some(_) | None => Phase::Expired,
        }
    }

    pub(crate) fn health_at(&self, now: Timestamp) -> Health {
        let token = self.valid_at(now);
        let due = token.map_or(Duration::ZERO, |(_, life)| life.renew_at.left_at(now));
        Health {
            phase: self.phase_at(now),
            generation: self.generation,
            life_left: token.map(|(_, life)| life.expires_at.left_at(now)),
            last_error: self.failure.as_ref().map(|failure| failure.error.clone()),
            next_attempt: due.max(self.backoff_left_at(now)),
            waiting_for: self.in_flight.map(|(_, began)| began.age_at(now)),
            refused_for: token.and(self.refusals.doubted_for_at(now)),
            last_success: self.succeeded_at.map(|at| at.age_at(now)),
            endpoint: String::new(),
        }
    }

    fn needed(&mut self, now: Timestamp) -> Action {
        self.expire(now);
        if self.token.is_none() {
            return self.request_at(now);
        }
        let Some((Reason::Refused, began)) = self.in_flight else {
            return Action::Send;
        };
        let until = began.checked_add(LONGEST_DELAY);
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
        let reason = if first { Reason::Start } else { Reason::Expiry };
        self.in_flight = Some((reason, now));
        Action::Request
    }

    fn timer(&mut self, now: Timestamp) -> Action {
        self.expire(now);
        let (None, Some(token)) = (self.in_flight, &self.token) else {
            return Action::Rest;
        };
        let Lifetime {
            renew_at,
            expires_at,
        } = token.lifetime;
        // Under `OnExpiry` the next call requests a token, and the timer only ends the old one.
        if renew_at == expires_at {
            return Action::Sleep(expires_at.left_at(now));
        }
        let wait = renew_at.left_at(now).max(self.backoff_left_at(now));
        if !wait.is_zero() {
            return Action::Sleep(wait);
        }
        self.in_flight = Some((Reason::Schedule, now));
        Action::Request
    }

    fn fetched(&mut self, fetched: Fetched, now: Timestamp) -> Action {
        let draw = (self.draw)();
        let planned = Lifetime::plan_at(now, fetched.sent, fetched.life, self.policy, draw);
        let Some(lifetime) = planned else {
            let reason = "its token was expired on arrival, by the clock of this machine";
            return self.failed(&TokenError::new(Kind::Malformed(reason)), now);
        };
        let in_flight = self.in_flight.take();
        let reason = in_flight.map_or(Reason::Start, |(reason, _)| reason);
        if let Some(failure) = self.failure.take() {
            let down = failure.since.age_at(now);
            self.notices.push(Notice::Recovered(down));
        }
        self.backoff.succeed();
        self.refusals.replaced();
        self.succeeded_at = Some(now);
        self.generation += 1;
        let generation = self.generation;
        self.token = Some(Token {
            generation,
            sent: fetched.sent,
            lifetime,
        });
        let life = lifetime.expires_at.left_at(now);
        let renewed = Notice::Renewed(generation, reason, life, fetched.is_own);
        self.notices.push(renewed);
        Action::Use(generation, lifetime)
    }

    fn failed(&mut self, error: &TokenError, now: Timestamp) -> Action {
        let in_flight = self.in_flight.take();
        let reason = in_flight.map_or(Reason::Start, |(reason, _)| reason);
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
        self.expire(now);
        match &self.token {
            // The refused token has expired since. A resend needs a new token.
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
            self.notices.push(Notice::Refused(generation));
        }
        let may_refresh = self.refusals.refused_at(now);
        if self.in_flight.is_some() {
            return Action::Join;
        }
        if !may_refresh || !self.backoff_left_at(now).is_zero() {
            return Action::Rest;
        }
        self.refusals.charge_at(now);
        self.in_flight = Some((Reason::Refused, now));
        Action::Request
    }

    /// The rest of the backoff.
    fn backoff_left_at(&self, now: Timestamp) -> Duration {
        let failure = self.failure.as_ref();
        failure.map_or(Duration::ZERO, |failure| {
            failure.until.saturating_duration_since(now.steady)
        })
    }

    /// The last error, while its backoff lasts.
    fn backoff_error_at(&self, now: Timestamp) -> Option<TokenError> {
        let failure = self.failure.as_ref()?;
        let wait = failure.until.checked_duration_since(now.steady)?;
        let error = failure.error.failing_for(failure.since.age_at(now));
        (!wait.is_zero()).then(|| error.with_retry_after(wait))
    }

    fn expire(&mut self, now: Timestamp) {
        if self.token.is_some() && self.valid_at(now).is_none() {
            self.token = None;
        }
    }
}

/// The longest delay of a call by a doubted token, counted from the start of the refresh.
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// The time between two log lines of a failure that continues.
const LOG_EVERY: Duration = Duration::from_secs(60);
