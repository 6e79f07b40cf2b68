//! State of one token source, as a value: two tokens, the request in flight, the last failure.
//!
//! Events go in, actions come out. This module does no I/O, reads no clock and spawns no task.
//!
//! Until its expiry a token is *valid*: *fresh* until its renewal is due, then *stale*. Its *generation* is its number in
//! this process. While calls may send a token without a read of this state, it is *settled*. One token request for all
//! waiters is a *flight*, and flights are numbered too.
//!
//! Two tokens are kept, because neither a 401 nor a new token proves much. The older one is sent until it is refused, or
//! until half of what it had left is over, because a gateway whose clock is behind that of the issuer refuses a token
//! that was issued in its future. When one is refused, the other is sent; of two that are refused, the one whose refusal
//! is longer ago, so that both are tried in turn. A refused token is *dead* if it was accepted before, and *too young* if
//! it never was. Either stays until a newer one is accepted: the 401 may have been an error.

use std::{mem, sync::Arc, time::Duration};

use tokio::time::Instant;

pub(crate) use self::lifetime::Lifetime;
use self::throttle::{Backoff, Refreshes, Roles};
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
    /// How long before its expiry a token is renewed, if that was set.
    refresh_before: Option<Duration>,
    /// Draws a number in `0.0..1.0`, for jitter.
    draw: fn() -> f64,
    /// At most two tokens, the older one first, until their expiry is noticed. The `renew_at` of an older one is the time
    /// from which the newer one is sent.
    tokens: Vec<Kept>,
    /// Number of the newest token; zero before the first.
    generation: u64,
    in_flight: Option<Flight>,
    /// How many flights have begun.
    flights: u64,
    failure: Option<Failure>,
    backoff: Backoff,
    refreshes: Refreshes,
    roles: Roles,
    /// When the service began to refuse tokens; `None` after an acceptance.
    refused_since: Option<Timestamp>,
    /// When the last token came.
    succeeded_at: Option<Timestamp>,
    notices: Vec<Notice>,
}

/// A token, and what the service has said of it.
#[derive(Debug)]
struct Kept {
    bearer: Arc<Bearer>,
    is_own: bool,
    is_accepted: bool,
    /// Refusals since it was last accepted.
    refusals: u32,
    refused_at: Option<Timestamp>,
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

/// Newest token at the start of a flight.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    bearer: Arc<Bearer>,
    /// Whether the flight replaces a token that the service has refused.
    is_refused: bool,
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
    /// When the last one happened.
    at: Timestamp,
    /// When the credentials were read last.
    read_at: Timestamp,
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
    /// Renewal of a valid token.
    Schedule,
    /// Expiry of the last token.
    Expiry,
    /// Refusal of the token in use by the service.
    Refused,
    /// A call that lacks a role.
    Role,
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
    /// The credentials are still those that were refused, so no token was requested.
    Unchanged,
    /// The flight has ended with its runtime, so nothing is known of its result.
    Lost,
    /// A call with the token of this number was accepted.
    Accepted(u64),
    /// A call with the token of this number was refused.
    Refused(u64),
    /// A program without the layer reports a refusal of the token of this number.
    Invalidated(u64),
    /// A call with the token of this number lacked a role.
    RoleMissing(u64),
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
    /// Another token than the refused one is in use.
    Superseded,
    /// Call again after this time, because the clock of the service may be behind.
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
    pub(crate) fn new(refresh_before: Option<Duration>, draw: fn() -> f64) -> Self {
        Self {
            refresh_before,
            draw,
            tokens: Vec::with_capacity(3),
            generation: 0,
            in_flight: None,
            flights: 0,
            failure: None,
            backoff: Backoff::default(),
            refreshes: Refreshes::default(),
            roles: Roles::default(),
            refused_since: None,
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
            Event::Lost | Event::Unchanged => {
                self.in_flight = None;
                Action::Rest
            }
            Event::Accepted(generation) => self.accepted(generation, now),
            Event::Refused(generation) => self.refused(generation, now),
            Event::Invalidated(generation) => self.invalidated(generation, now),
            Event::RoleMissing(generation) => self.role_missing(generation, now),
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

    /// Returns the token to send.
    pub(crate) fn in_use_at(&self, now: Timestamp) -> Option<&Arc<Bearer>> {
        self.pick_at(now).map(|it| &it.bearer)
    }

    fn pick_at(&self, now: Timestamp) -> Option<&Kept> {
        let is_valid = move |it: &&Kept| it.bearer.lifetime.is_valid_at(now);
        let valid = || self.tokens.iter().filter(is_valid);
        let good = || valid().filter(|it| it.is_good_at(now));
        let mut early = good().filter(|it| !it.bearer.lifetime.renew_at.has_come_at(now));
        let by_turn = || valid().min_by_key(|it| it.refused_at.map(|at| at.steady));
        early.next().or_else(|| good().next_back()).or_else(by_turn)
    }

    /// Returns the number of the token, if calls may send it without a look at this state.
    pub(crate) fn settled_at(&self, now: Timestamp) -> Option<u64> {
        let pick = self.pick_at(now)?;
        let is_due = pick.bearer.lifetime.renew_at.has_come_at(now);
        let is_settled = pick.is_accepted && !pick.is_refused() && !is_due;
        is_settled.then_some(pick.bearer.generation)
    }

    /// Returns the newest token, for the choice between it and a stored one.
    pub(crate) fn current_at(&self, now: Timestamp) -> Option<Current> {
        let newest = self.tokens.last()?;
        let bearer = Arc::clone(&newest.bearer);
        bearer.lifetime.is_valid_at(now).then_some(Current {
            bearer,
            is_refused: newest.is_refused(),
        })
    }

    pub(crate) fn phase_at(&self, now: Timestamp) -> Phase {
        let newest = self.tokens.last();
        let is_due = |it: &Kept| it.bearer.lifetime.renew_at.has_come_at(now);
        match self.pick_at(now) {
            Some(pick) if pick.is_refused() => Phase::Doubted,
            Some(_) if newest.is_some_and(is_due) => Phase::Stale,
            Some(_) => Phase::Fresh,
            None if self.generation == 0 => Phase::Absent,
            None => Phase::Expired,
        }
    }

    pub(crate) fn health_at(&self, now: Timestamp) -> Health {
        let pick = self.pick_at(now);
        let renew_at = self.tokens.last().map(|it| it.bearer.lifetime.renew_at);
        let due = renew_at.map_or(Duration::ZERO, |it| it.left_at(now));
        let refused_since = self
            .refused_since
            .filter(|_| pick.is_some_and(Kept::is_refused));
        Health {
            phase: self.phase_at(now),
            generation: self.generation,
            life_left: pick.map(|it| it.bearer.lifetime.expires_at.left_at(now)),
            last_error: self.failure.as_ref().map(|failure| failure.error.clone()),
            next_attempt: due.max(self.backoff_left_at(now)),
            waiting_for: self.in_flight.map(|it| it.began.age_at(now)),
            refused_for: refused_since.map(|since| since.age_at(now)),
            last_success: self.succeeded_at.map(|at| at.age_at(now)),
            endpoint: String::new(),
        }
    }

    fn needed(&mut self, now: Timestamp) -> Action {
        self.advance(now);
        let Some(pick) = self.pick_at(now) else {
            return self.request_at(now);
        };
        let replacing = self.in_flight.filter(|it| it.reason == Reason::Refused);
        let until = replacing.and_then(|flight| flight.began.checked_add(LONGEST_DELAY));
        match until.filter(|until| pick.is_refused() && !until.has_come_at(now)) {
            Some(until) => Action::JoinUntil(until.steady),
            None => Action::Send,
        }
    }

    /// Starts or joins a request for a call that has no token.
    fn request_at(&mut self, now: Timestamp) -> Action {
        if self.in_flight.is_some() {
            return Action::Join;
        }
        if let Some(error) = self.backoff_error_at(now)
            && !self.reads_again(now)
        {
            return Action::Fail(error);
        }
        let first = self.generation == 0;
        self.begin(if first { Reason::Start } else { Reason::Expiry }, now)
    }

    /// Whether the credentials are read again, although the backoff after their refusal is not over.
    fn reads_again(&mut self, now: Timestamp) -> bool {
        let is_first = self.backoff.failures() == 1;
        let failure = self.failure.as_mut().filter(|it| {
            let is_far = is_first || it.at.age_at(now) >= REREFUSED;
            it.error.refused().is_some() && is_far && it.read_at.age_at(now) >= READ_EVERY
        });
        failure.map(|it| it.read_at = now).is_some()
    }

    /// Returns the digest of the credentials that were refused, during the backoff that follows.
    pub(crate) fn refused_at(&self, now: Timestamp) -> Option<u16> {
        let failure = self.failure.as_ref();
        let failure = failure.filter(|_| !self.backoff_left_at(now).is_zero());
        failure.and_then(|it| it.error.refused())
    }

    fn begin(&mut self, reason: Reason, began: Timestamp) -> Action {
        self.flights += 1;
        self.in_flight = Some(Flight { reason, began });
        Action::Request
    }

    fn timer(&mut self, now: Timestamp) -> Action {
        self.advance(now);
        let (None, Some(newest)) = (self.in_flight, self.tokens.last()) else {
            return Action::Rest;
        };
        let Lifetime {
            renew_at,
            expires_at,
        } = newest.bearer.lifetime;
        // If it is renewed at its expiry, the next call requests a token, and the timer only ends the old one.
        let wait = if renew_at == expires_at {
            renew_at.left_at(now)
        } else {
            renew_at.left_at(now).max(self.backoff_left_at(now))
        };
        if wait.is_zero() {
            return self.begin(Reason::Schedule, now);
        }
        // No backoff delays the turn of the newer token, or the end of the older one.
        let older = self.tokens.first().map(|it| it.bearer.lifetime);
        let turns = older
            .into_iter()
            .flat_map(|it| [it.renew_at, it.expires_at]);
        let turns = turns
            .map(|it| it.left_at(now))
            .filter(|left| !left.is_zero());
        Action::Sleep(turns.fold(wait, Duration::min))
    }

    fn fetched(&mut self, issued: Issued, now: Timestamp) -> Action {
        self.advance(now);
        let Issued { token, fetched } = issued;
        let draw = (self.draw)();
        let planned = Lifetime::plan_at(now, fetched.sent, fetched.life, self.refresh_before, draw);
        let Some(mut lifetime) = planned else {
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
        if reason == Reason::Refused {
            self.refreshes.note_at(now);
        }
        let left = lifetime.expires_at.left_at(now);
        // A server may return one token until its end. Near the end, only the end helps.
        let is_same = |it: &&mut Kept| it.bearer.token.header() == token.header();
        if let Some(kept) = self.tokens.iter_mut().find(is_same) {
            let bearer = Arc::make_mut(&mut kept.bearer);
            let before = bearer.lifetime.expires_at.wall;
            let extended = lifetime.expires_at.wall.duration_since(before);
            if extended.is_ok_and(|by| by > ROUNDING) {
                bearer.sent = fetched.sent;
            }
            if left * LAST_SHARE < left + bearer.sent.age_at(now) {
                lifetime.renew_at = lifetime.expires_at;
            }
            bearer.lifetime = lifetime;
            return Action::Rest;
        }
        self.generation += 1;
        let renewed = Notice::Renewed(self.generation, reason, left, fetched.is_own);
        self.notices.push(renewed);
        if self.tokens.len() > 1 {
            let dead = self.tokens.iter().position(|it| it.is_dead_at(now));
            let worst = dead.or_else(|| self.tokens.iter().rposition(Kept::is_refused));
            drop(self.tokens.remove(worst.unwrap_or_default()));
        }
        if let Some(older) = self.tokens.first_mut() {
            let is_replaced =
                matches!(reason, Reason::Refused | Reason::Role) || older.is_refused();
            let lifetime = &mut Arc::make_mut(&mut older.bearer).lifetime;
            let share = if is_replaced { 0.0 } else { 0.5 };
            let rest = lifetime.expires_at.left_at(now).mul_f64(share);
            lifetime.renew_at = now.checked_add(rest).unwrap_or(now);
        }
        let bearer = Bearer {
            generation: self.generation,
            token,
            lifetime,
            sent: fetched.sent,
        };
        self.tokens.push(Kept::new(bearer, fetched.is_own));
        Action::Rest
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
            at: now,
            read_at: now,
            logged_at,
        });
        Action::Fail(error)
    }

    fn accepted(&mut self, generation: u64, now: Timestamp) -> Action {
        self.advance(now);
        let found = self
            .position(generation)
            .and_then(|at| self.tokens.get_mut(at));
        let Some(token) = found else {
            return Action::Rest;
        };
        // Otherwise the call may have been sent before the refusal that began the flight.
        if generation == self.generation && self.in_flight.is_none() {
            self.refreshes.tolerate(token.refusals);
        }
        (token.is_accepted, token.refusals, token.refused_at) = (true, 0, None);
        let end = token.bearer.lifetime.expires_at;
        if let Some(since) = self.refused_since.take() {
            let refused_for = since.age_at(now);
            self.notices.push(Notice::Accepted(generation, refused_for));
        }
        if generation == self.generation {
            // An older one is of use only if it is good and outlives this one.
            self.tokens.retain(|it| {
                let outlives = it.bearer.lifetime.expires_at.steady > end.steady;
                it.bearer.generation == generation || (outlives && !it.is_refused())
            });
        }
        Action::Rest
    }

    fn refused(&mut self, generation: u64, now: Timestamp) -> Action {
        self.advance(now);
        let found = self
            .position(generation)
            .and_then(|at| self.tokens.get_mut(at));
        let Some(token) = found else {
            return self.missed(now);
        };
        token.refusals = token.refusals.saturating_add(1);
        token.refused_at = Some(now);
        let refusals = token.refusals;
        if self.refused_since.is_none() {
            self.refused_since = Some(now);
            self.notices.push(Notice::Refused(generation));
        }
        if self.pick_at(now).is_some_and(|it| it.is_good_at(now)) {
            return Action::Superseded;
        }
        if self.in_flight.is_some() {
            return Action::Join;
        }
        // Two young tokens are enough, unless neither is ever accepted.
        let is_waiting = self.tokens.len() > 1 && !self.tokens.iter().any(|it| it.is_dead_at(now));
        let may_refresh = self.refreshes.allow_at(now, refusals, is_waiting);
        if may_refresh && self.backoff_left_at(now).is_zero() {
            return self.begin(Reason::Refused, now);
        }
        let is_young = |it: &Kept| !it.is_accepted && it.bearer.sent.age_at(now) < YOUNG;
        if self.tokens.iter().any(is_young) {
            return Action::SendAfter(BEHIND);
        }
        Action::Rest
    }

    /// Without responses, only a token's age shows that it was good before it was reported.
    fn invalidated(&mut self, generation: u64, now: Timestamp) -> Action {
        let found = self
            .position(generation)
            .and_then(|at| self.tokens.get_mut(at));
        if let Some(token) = found.filter(|it| it.bearer.sent.age_at(now) >= YOUNG) {
            token.is_accepted = true;
        }
        self.refused(generation, now)
    }

    fn role_missing(&mut self, generation: u64, now: Timestamp) -> Action {
        self.advance(now);
        let Some(at) = self.position(generation) else {
            return self.missed(now);
        };
        let newer = self.tokens.get(at + 1);
        if newer.is_some_and(|it| it.is_good_at(now)) {
            // The newer token may have the role, so its turn has come.
            if let Some(older) = self.tokens.get_mut(at) {
                Arc::make_mut(&mut older.bearer).lifetime.renew_at = now;
            }
            return Action::Superseded;
        }
        let wait = self.roles.missing(generation);
        let is_old = |it: &Kept| it.bearer.sent.age_at(now) >= wait;
        let is_due = self.tokens.get(at).is_some_and(is_old);
        if self.in_flight.is_some() {
            return Action::Join;
        }
        if !is_due || !self.backoff_left_at(now).is_zero() {
            return Action::Rest;
        }
        self.begin(Reason::Role, now)
    }

    /// Decides on a refused call whose token is gone: a resend needs the token in use, or a new one.
    fn missed(&mut self, now: Timestamp) -> Action {
        if self.pick_at(now).is_some() {
            return Action::Superseded;
        }
        match self.request_at(now) {
            Action::Fail(_) => Action::Rest,
            action => action,
        }
    }

    /// Whether the token of this number was never accepted, and so may be too young.
    pub(crate) fn is_untried(&self, generation: u64) -> bool {
        let at = self.position(generation);
        at.and_then(|at| self.tokens.get(at))
            .is_some_and(|it| !it.is_accepted)
    }

    fn position(&self, generation: u64) -> Option<usize> {
        let mut tokens = self.tokens.iter();
        tokens.position(|it| it.bearer.generation == generation)
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

    /// Ends the tokens that have expired.
    fn advance(&mut self, now: Timestamp) {
        self.tokens.retain(|it| it.bearer.lifetime.is_valid_at(now));
    }
}

// === impl Kept ===

impl Kept {
    fn new(bearer: Bearer, is_own: bool) -> Self {
        Self {
            bearer: Arc::new(bearer),
            is_own,
            is_accepted: false,
            refusals: 0,
            refused_at: None,
        }
    }

    fn is_refused(&self) -> bool {
        self.refusals > 0
    }

    /// Whether it may be sent before a token that was refused. If it is too young, it may again once its age has doubled.
    fn is_good_at(&self, now: Timestamp) -> bool {
        self.refused_at.is_none_or(|at| {
            let age = self.bearer.sent.age_at(at).max(AGAIN);
            !self.is_accepted && at.age_at(now) >= age
        })
    }

    /// Whether a refused token was good before. A token from a store was accepted by others by the time that it is two
    /// minutes old.
    fn is_dead_at(&self, now: Timestamp) -> bool {
        let is_used = !self.is_own && self.bearer.sent.age_at(now) >= YOUNG;
        self.is_refused() && (self.is_accepted || is_used)
    }
}

// === impl Current ===

impl Current {
    /// Whether a token from a store is preferred to the newest token, if there is one.
    ///
    /// If that one is refused, only one that was requested at the same time or later replaces it, so that a store cannot
    /// bring back an older token.
    pub(crate) fn is_worse_than(current: Option<&Self>, other: &Issued, now: Timestamp) -> bool {
        let Fetched { sent, life, .. } = other.fetched;
        let expires_at = sent.checked_add(life);
        let left = expires_at.map_or(Duration::ZERO, |it| it.left_at(now));
        let current = current.filter(|it| it.bearer.lifetime.is_valid_at(now));
        let Some(Self { bearer, is_refused }) = current else {
            return !left.is_zero();
        };
        bearer.token.header() != other.token.header()
            && if *is_refused {
                !left.is_zero() && sent.wall >= bearer.sent.wall
            } else {
                left > bearer.lifetime.expires_at.left_at(now)
            }
    }
}

/// Longest delay of a call by a refused token, counted from the start of the refresh.
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// Wait before a call is sent again while a token may be too young. Few clocks are more than a second behind.
const BEHIND: Duration = Duration::from_secs(2);
/// Shortest time until a token that is too young is preferred to a refused one again.
const AGAIN: Duration = Duration::from_secs(5);
/// Age from which a token that was not seen in use counts as accepted before. Clocks are rarely further behind, and a
/// deployment of tokens that nobody accepts takes longer.
const YOUNG: Duration = Duration::from_secs(120);
/// A token that the endpoint returns again is not renewed once less than this share of its life is left: three renewals
/// have then brought it, and the next would, too.
const LAST_SHARE: u32 = 25;
/// Replies give the life in whole seconds, so the same expiry differs by a second or two.
const ROUNDING: Duration = Duration::from_secs(2);
/// Time between two reads of the credentials after their refusal. A secret's file is small, and a vault is asked no more
/// often than a health check would.
const READ_EVERY: Duration = Duration::from_secs(5);
/// Time after which changed credentials are sent if others were refused in a row, because a provider may make new ones
/// with each call.
const REREFUSED: Duration = Duration::from_secs(30);
/// Time between two log lines of a failure that continues.
const LOG_EVERY: Duration = Duration::from_secs(60);
