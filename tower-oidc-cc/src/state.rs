//! State of one token source, as a value: two tokens, the request in flight, the last failure.
//!
//! It does no I/O, reads no clock and spawns no task: time is an argument of each event.
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

use self::throttle::{Refreshes, Roles, backoff};
use crate::{
    clock::Timestamp,
    error::{ErrorKind, Refresh, TokenError},
    reply::{AccessToken, Issued, Lifetime},
};

#[cfg(test)]
mod tests;
mod throttle;

/// State of one token source.
pub(crate) struct State {
    /// How long before its expiry a token is renewed, if that was set.
    refresh_before: Option<Duration>,
    /// Draws a number in `0.0..1.0`, for jitter.
    draw: fn() -> f64,
    /// At most two tokens, the older one first, until their expiry is noticed. The `renew_at` of an older one is the time
    /// from which the newer one is sent.
    tokens: Vec<Kept>,
    /// Number of the newest token; zero before the first.
    pub(crate) generation: u64,
    in_flight: Option<Flight>,
    /// How many flights have begun.
    flights: u64,
    failure: Option<Failure>,
    refreshes: Refreshes,
    roles: Roles,
    /// When the last token came.
    pub(crate) succeeded_at: Option<Timestamp>,
    pub(crate) notices: Vec<Notice>,
}

/// A token, with the service's responses to it.
struct Kept {
    bearer: Arc<Bearer>,
    /// Whether its first call is this process's: no other has used it, and the layer reads the responses.
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
    pub(crate) sent: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    trigger: Trigger,
    began: Timestamp,
}

/// Last failure, until a success.
struct Failure {
    error: TokenError,
    /// Failures since the last success.
    failures: u32,
    /// End of the backoff.
    until: Instant,
    at: Timestamp,
    /// When the credentials were read last.
    read_at: Timestamp,
}

/// Writes a line of the log, after the lock is released.
pub(crate) type Notice = Box<dyn FnOnce() + Send>;

/// Why a token is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// A call has no token.
    Missing,
    /// Renewal of a valid token.
    Schedule,
    /// Refusal of the token in use by the service.
    Refused,
    /// A call that lacks a role.
    Role,
}

/// Next step of a call that needs a token.
#[derive(Debug)]
pub(crate) enum Need {
    Send(Arc<Bearer>),
    /// Wait for the flight. From the instant on, if there is one, the token in use may be sent.
    Wait(Option<Instant>),
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
            refreshes: Refreshes::default(),
            roles: Roles::default(),
            succeeded_at: None,
            notices: Vec::new(),
        }
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
    pub(crate) fn newest(&self) -> Option<Arc<Bearer>> {
        self.tokens.last().map(|it| Arc::clone(&it.bearer))
    }

    /// Returns the last failure, if no token has come since.
    pub(crate) fn last_error(&self) -> Option<&TokenError> {
        self.failure.as_ref().map(|failure| &failure.error)
    }

    /// Decides on a call that needs a token. Without one, it begins a flight.
    pub(crate) fn need(&mut self, now: Timestamp) -> Result<Need, TokenError> {
        self.advance(now);
        let Some(pick) = self.pick_at(now) else {
            return self.request(now).map(|()| Need::Wait(None));
        };
        let replacing = self.in_flight.filter(|it| it.trigger == Trigger::Refused);
        let until = replacing.and_then(|flight| flight.began.checked_add(LONGEST_DELAY));
        Ok(
            match until.filter(|until| pick.is_refused() && !until.has_come_at(now)) {
                Some(until) => Need::Wait(Some(until.steady)),
                None => Need::Send(Arc::clone(&pick.bearer)),
            },
        )
    }

    /// Begins or joins a flight for a call that has no token. In the backoff it fails with the last error.
    fn request(&mut self, now: Timestamp) -> Result<(), TokenError> {
        if self.in_flight.is_some() {
            return Ok(());
        }
        let wait = self.backoff_left_at(now);
        if !wait.is_zero()
            && !self.reads_again(now)
            && let Some(failure) = &self.failure
        {
            return Err(failure.error.with_retry_after(wait));
        }
        self.begin(Trigger::Missing, now);
        Ok(())
    }

    /// Whether the credentials are read again, although the backoff after their refusal is not over.
    fn reads_again(&mut self, now: Timestamp) -> bool {
        let failure = self.failure.as_mut().filter(|it| {
            let is_far = it.failures == 1 || it.at.age_at(now) >= REREFUSED;
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

    fn begin(&mut self, trigger: Trigger, began: Timestamp) {
        self.flights += 1;
        self.in_flight = Some(Flight { trigger, began });
    }

    /// Begins the renewal if it is due. Otherwise it returns the time until something changes, if that is known.
    pub(crate) fn tick(&mut self, now: Timestamp) -> Option<Duration> {
        self.advance(now);
        let (None, Some(newest)) = (self.in_flight, self.tokens.last()) else {
            return None;
        };
        let Lifetime {
            renew_at,
            expires_at,
        } = newest.bearer.lifetime;
        // If it is renewed at its expiry, the next call requests a token, and the tick only ends the old one.
        let wait = if renew_at == expires_at {
            renew_at.left_at(now)
        } else {
            renew_at.left_at(now).max(self.backoff_left_at(now))
        };
        if wait.is_zero() {
            self.begin(Trigger::Schedule, now);
            return None;
        }
        // No backoff delays the turn of the newer token, or the end of the older one.
        let older = self.tokens.first().map(|it| it.bearer.lifetime);
        let turns = older
            .into_iter()
            .flat_map(|it| [it.renew_at, it.expires_at]);
        let turns = turns
            .map(|it| it.left_at(now))
            .filter(|left| !left.is_zero());
        Some(turns.fold(wait, Duration::min))
    }

    /// Ends the flight with a token.
    pub(crate) fn fetched(&mut self, issued: Issued, now: Timestamp) {
        self.advance(now);
        let draw = (self.draw)();
        let Some(lifetime) = issued.lifetime_at(now, self.refresh_before, draw) else {
            let reason = "its token was expired on arrival, by the clock of this machine";
            return self.failed(&TokenError::new(ErrorKind::Malformed(reason)), now);
        };
        if let Some(flight) = self.in_flight.filter(|it| it.trigger == Trigger::Refused) {
            self.refreshes.note_at(flight.began);
        }
        let trigger = self.land();
        self.failure = None;
        self.succeeded_at = Some(now);
        self.generation += 1;
        let (generation, is_own) = (self.generation, issued.is_own);
        let life = lifetime.expires_at.left_at(now);
        self.notices.push(Box::new(move || {
            tracing::info!(generation, ?trigger, ?life, is_own, "token renewed");
        }));
        if self.tokens.len() > 1 {
            let dead = self.tokens.iter().position(|it| it.is_dead_at(now));
            let worst = dead.or_else(|| self.tokens.iter().rposition(Kept::is_refused));
            drop(self.tokens.remove(worst.unwrap_or_default()));
        }
        if let Some(older) = self.tokens.first_mut() {
            let is_replaced =
                matches!(trigger, Trigger::Refused | Trigger::Role) || older.is_refused();
            let lifetime = &mut Arc::make_mut(&mut older.bearer).lifetime;
            let share = if is_replaced { 0.0 } else { 0.5 };
            let rest = lifetime.expires_at.left_at(now).mul_f64(share);
            lifetime.renew_at = now.checked_add(rest).unwrap_or(now);
        }
        self.tokens.push(Kept {
            bearer: Arc::new(Bearer {
                generation,
                token: issued.token,
                lifetime,
                sent: issued.sent,
            }),
            is_own,
            is_accepted: false,
            refusals: 0,
            refused_at: None,
        });
    }

    /// Ends the flight with an error.
    pub(crate) fn failed(&mut self, error: &TokenError, now: Timestamp) {
        let trigger = self.land();
        let failures = self.failure.as_ref().map_or(0, |it| it.failures);
        let wait = backoff(failures, error, (self.draw)());
        let error = error.with_retry_after(wait);
        self.failure = Some(Failure {
            error: error.clone(),
            failures: failures.saturating_add(1),
            until: now.steady.checked_add(wait).unwrap_or(now.steady),
            at: now,
            read_at: now,
        });
        self.notices.push(Box::new(move || {
            tracing::warn!(%error, ?trigger, "token request failed");
        }));
    }

    /// Ends the flight, and returns why it began. The credentials may still be those that were refused, so that no token
    /// was requested.
    pub(crate) fn land(&mut self) -> Trigger {
        let flight = self.in_flight.take();
        flight.map_or(Trigger::Missing, |flight| flight.trigger)
    }

    /// Records that a call with the token of this number was accepted.
    pub(crate) fn accepted(&mut self, generation: u64, now: Timestamp) {
        self.advance(now);
        if let Some(token) = self.find(generation) {
            let refusals = mem::take(&mut token.refusals);
            (token.is_accepted, token.refused_at) = (true, None);
            if generation == self.generation {
                // During a flight, the call may have been sent before the refusal that began it.
                if self.in_flight.is_none() {
                    self.refreshes.tolerate(refusals);
                }
                self.tokens.retain(|it| it.bearer.generation == generation);
            }
        }
    }

    /// Decides on a call that was refused with the token of this number: `Ok` if it is held for the flight.
    pub(crate) fn refused(&mut self, generation: u64, now: Timestamp) -> Result<(), Refresh> {
        self.advance(now);
        let Some(token) = self.find(generation) else {
            return Err(Refresh::Replaced);
        };
        token.refusals = token.refusals.saturating_add(1);
        token.refused_at = Some(now);
        let refusals = token.refusals;
        if refusals == 1 {
            self.notices.push(Box::new(move || {
                tracing::warn!(generation, "the service refuses the token");
            }));
        }
        if self.pick_at(now).is_some_and(|it| it.is_good_at(now)) {
            return Err(Refresh::Replaced);
        }
        if self.in_flight.is_some() {
            return Ok(());
        }
        // Two young tokens are enough, unless neither is ever accepted.
        let is_waiting = self.tokens.len() > 1 && !self.tokens.iter().any(|it| it.is_dead_at(now));
        let may_refresh = self.refreshes.allow_at(now, refusals, is_waiting);
        if may_refresh && (self.backoff_left_at(now).is_zero() || self.reads_again(now)) {
            self.begin(Trigger::Refused, now);
            return Ok(());
        }
        let is_young = |it: &Kept| !it.is_accepted && it.bearer.sent.age_at(now) < YOUNG;
        if self.tokens.iter().any(is_young) {
            return Err(Refresh::After(BEHIND));
        }
        Err(Refresh::None)
    }

    /// As [`refused`](Self::refused), for a program without the layer: no response shows whether the token was good, so
    /// its age does.
    pub(crate) fn invalidated(&mut self, generation: u64, now: Timestamp) -> Result<(), Refresh> {
        if let Some(token) = self.find(generation) {
            token.is_own = false;
        }
        self.refused(generation, now)
    }

    /// Decides on a call for which the token of this number lacked a role: `Ok` if it is held for the flight.
    pub(crate) fn role_missing(&mut self, generation: u64, now: Timestamp) -> Result<(), Refresh> {
        self.advance(now);
        let Some(token) = self.find(generation) else {
            return Err(Refresh::Replaced);
        };
        let age = token.bearer.sent.age_at(now);
        let wait = self.roles.missing(generation);
        if self.in_flight.is_some() {
            return Ok(());
        }
        if age < wait || !self.backoff_left_at(now).is_zero() {
            return Err(Refresh::None);
        }
        self.begin(Trigger::Role, now);
        Ok(())
    }

    /// Whether the token of this number was never accepted, and so may be too young.
    pub(crate) fn is_untried(&mut self, generation: u64) -> bool {
        self.find(generation).is_some_and(|it| !it.is_accepted)
    }

    fn find(&mut self, generation: u64) -> Option<&mut Kept> {
        let mut tokens = self.tokens.iter_mut();
        tokens.find(|it| it.bearer.generation == generation)
    }

    /// Returns the time that is left of the backoff.
    fn backoff_left_at(&self, now: Timestamp) -> Duration {
        let failure = self.failure.as_ref();
        failure.map_or(Duration::ZERO, |failure| {
            failure.until.saturating_duration_since(now.steady)
        })
    }

    /// Ends the tokens that have expired.
    fn advance(&mut self, now: Timestamp) {
        self.tokens.retain(|it| it.bearer.lifetime.is_valid_at(now));
    }
}

// === impl Kept ===

impl Kept {
    fn is_refused(&self) -> bool {
        self.refusals > 0
    }

    /// Whether it may be sent before a token that was refused. If it is too young, it may again once its age has doubled.
    fn is_good_at(&self, now: Timestamp) -> bool {
        self.refused_at.is_none_or(|at| {
            let age = self.bearer.sent.age_at(at).max(AGAIN);
            !self.is_dead_at(now) && at.age_at(now) >= age
        })
    }

    /// Whether a refused token was good before. A token that others use was accepted by the time that it is two minutes
    /// old.
    fn is_dead_at(&self, now: Timestamp) -> bool {
        let is_used = !self.is_own && self.bearer.sent.age_at(now) >= YOUNG;
        self.is_refused() && (self.is_accepted || is_used)
    }
}

/// Longest delay of a call by a refused token, counted from the start of the refresh.
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// Wait before a call is sent again while a token may be too young. Few clocks are more than a second behind.
const BEHIND: Duration = Duration::from_secs(2);
/// Shortest time until a token that is too young is preferred to a refused one again.
const AGAIN: Duration = Duration::from_secs(5);
/// Age from which a token that was not seen in use counts as accepted before. Clocks are rarely further behind, and a
/// deployment whose tokens no service accepts takes longer.
const YOUNG: Duration = Duration::from_secs(120);
/// Time between two reads of the credentials after their refusal. A secret's file is small, and a vault gets no more
/// requests than by a health check.
const READ_EVERY: Duration = Duration::from_secs(5);
/// Time after which changed credentials are sent if others were refused in a row, because a provider may make new ones
/// with each call.
const REREFUSED: Duration = Duration::from_secs(30);
