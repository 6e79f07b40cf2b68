//! The life of a token, as one value: what is there, who is refused, when the next one is asked
//! for. It is told what happens and says what to do. No I/O, no clock, no task.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

pub use self::lifetime::RefreshPolicy;
pub(crate) use self::throttle::Budget;
pub(crate) use self::{doubt::Call, lifetime::Lifetime};
use self::{
    doubt::{Doubts, Refusal},
    throttle::{Account, Backoff, Need},
};
use crate::{Health, TokenError, clock::Timestamp, error::token::Kind};

mod doubt;
mod lifetime;
#[cfg(test)]
mod tests;
mod throttle;

/// Everything that is known about the token of one handle.
#[derive(Debug)]
pub(crate) struct Life {
    policy: RefreshPolicy,
    /// Numbers in `0.0..1.0`, for jitter.
    draw: fn() -> f64,
    /// The newest token, until it is known to have expired.
    token: Option<Token>,
    /// The number of the newest token; numbers are never used twice.
    generation: u64,
    /// Why a token is being asked for at this moment, if one is.
    under_way: Option<Reason>,
    /// Why there is no token.
    loss: Reason,
    /// Whether somebody waits for the first token, or for the one after an expiry.
    wanted: bool,
    /// The last failure, until a success.
    failure: Option<Failure>,
    backoff: Backoff,
    account: Account,
    doubts: Doubts,
    /// When a token was last asked for though nobody had called it dead.
    courtesy: Option<Timestamp>,
    /// Since when the service has been refusing tokens.
    refused_since: Option<Timestamp>,
    /// When the last token came.
    succeeded_at: Option<Timestamp>,
    /// Fingerprints of the tokens that were refused last: a store may still have them.
    dead: VecDeque<u64>,
    /// What has not been told yet.
    notices: Vec<Notice>,
}

/// The token in use.
#[derive(Debug)]
struct Token {
    generation: u64,
    fingerprint: u64,
    /// When it came to this process, which judges by that what it has seen of it.
    born: Timestamp,
    lifetime: Lifetime,
    /// Whose calls were accepted with it, the first of each group of places at least.
    accepted: Vec<Call>,
    refused: bool,
    /// Whether somebody has called it dead who knows: no acceptance clears that.
    by_hand: bool,
    /// When its successor is asked for, ahead of the renewal, and why.
    ask: Option<(Timestamp, Reason)>,
}

#[derive(Debug)]
struct Failure {
    error: TokenError,
    /// Until when the endpoint is left alone for it.
    until: Instant,
    /// When the first of these failures was.
    since: Timestamp,
    /// When one like it was told of last.
    told: Timestamp,
}

/// What is worth a line in a log: told when nobody holds the life any more, since those who listen
/// may ask back.
#[derive(Debug)]
pub(crate) enum Notice {
    Renewed(u64, Reason, Duration),
    FromStore(u64, Reason, Duration),
    EndpointIsBack(Duration),
    Failed(TokenError, Reason),
    Expired(u64),
    Refused(u64, Duration),
    AcceptedAgain(u64, Duration),
    Courtesy(u64),
}

/// How the token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There never was one.
    Absent,
    /// It serves, and nobody doubts it.
    Fresh,
    /// It serves, and its renewal is due.
    Stale,
    /// The service has refused it. It serves until its successor is there.
    Doubted,
    /// The service has refused its predecessors, too.
    Refused,
    /// It has expired, and there is no other yet.
    Expired,
}

/// Why a token is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reason {
    /// There never was one.
    #[default]
    Start,
    /// The policy says so, while the old one works.
    Schedule,
    /// The old one expired.
    Expiry,
    /// The service has refused the old one.
    Refused,
    /// The service has refused a call, and does not say why.
    Unexplained,
}

/// What is said against a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Complaint {
    /// A call of this place was refused for it.
    Dead(Call),
    /// Somebody says so who has seen its call refused.
    ByHand,
    /// A call was refused without a reason.
    Unexplained,
}

/// A token on its way into use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetched {
    pub(crate) fingerprint: u64,
    /// When it was asked for: life counts from here, since the server began to count later.
    pub(crate) sent: Timestamp,
    pub(crate) life: Duration,
    /// Whether this process asked the endpoint for it, and another did not.
    pub(crate) own: bool,
}

/// What happens.
#[derive(Debug)]
pub(crate) enum Event {
    /// Somebody needs a token, and has seen none.
    Asked,
    /// Time has passed.
    Timer,
    /// Time has passed, and no request can be made at this moment.
    Busy,
    /// A request is about to be sent to the endpoint.
    Sending,
    Fetched(Fetched),
    Failed(TokenError),
    /// The task that asks is gone, and with it what was under way.
    Abandoned,
    /// A call of this place was accepted with the token of this number, the first of its group.
    Accepted(u64, Call),
    /// Something is said against the token of this number.
    Refused(u64, Complaint),
}

/// What to do.
#[derive(Debug)]
pub(crate) enum Action {
    /// There is a token to send.
    Send,
    /// A request is due or under way: wait for its end.
    Wait,
    /// There is no token, and this is why nobody asks for one now.
    Fail(TokenError),
    /// Ask for a token now.
    Request,
    /// Look again after this long.
    Look(Duration),
    /// Nothing.
    Rest,
    /// Use the token that came, under this number.
    Use(u64, Lifetime),
    /// Send another token: the one in question was replaced before.
    Superseded,
}

// === impl Notice ===

impl Notice {
    pub(crate) fn tell(self) {
        match self {
            Self::Renewed(generation, reason, life) => {
                tracing::info!(generation, ?reason, ?life, "token renewed");
            }
            Self::FromStore(generation, reason, life) => {
                tracing::info!(generation, ?reason, ?life, "token taken from the store");
            }
            Self::EndpointIsBack(down) => {
                tracing::info!(?down, "the token endpoint gives tokens again");
            }
            Self::Failed(error, reason) => {
                tracing::warn!(%error, ?reason, "token request failed");
            }
            Self::Expired(generation) => tracing::info!(generation, "token expired"),
            Self::Refused(generation, wait) => {
                tracing::warn!(generation, ?wait, "the service refuses the token");
            }
            Self::AcceptedAgain(generation, refused) => {
                tracing::info!(generation, ?refused, "the service accepts the token again");
            }
            Self::Courtesy(generation) => {
                tracing::info!(
                    generation,
                    "a new token is asked for, since a call was refused"
                );
            }
        }
    }
}

// === impl Action ===

impl Action {
    /// How long nothing is to be done.
    pub(crate) fn wait(&self) -> Option<Duration> {
        if let Self::Look(wait) = self {
            Some(*wait)
        } else {
            None
        }
    }

    /// Why there is no token.
    pub(crate) fn failure(self) -> Option<TokenError> {
        if let Self::Fail(error) = self {
            Some(error)
        } else {
            None
        }
    }
}

// === impl Life ===

impl Life {
    pub(crate) fn new(policy: RefreshPolicy, budget: Budget, draw: fn() -> f64) -> Self {
        Self {
            policy,
            draw,
            token: None,
            generation: 0,
            under_way: None,
            loss: Reason::default(),
            wanted: false,
            failure: None,
            backoff: Backoff::default(),
            account: Account::new(budget),
            doubts: Doubts::default(),
            courtesy: None,
            refused_since: None,
            succeeded_at: None,
            dead: VecDeque::new(),
            notices: Vec::new(),
        }
    }

    /// Tells what happened, and says what to do about it.
    pub(crate) fn on(&mut self, event: Event, now: Timestamp) -> Action {
        match event {
            Event::Asked => self.asked(now),
            Event::Timer => self.timer(now),
            Event::Busy => self.busy(now),
            Event::Sending => self.sending(now),
            Event::Fetched(token) => self.fetched(token, now),
            Event::Failed(error) => self.failed(&error, now),
            Event::Abandoned => {
                self.under_way = None;
                Action::Rest
            }
            Event::Accepted(generation, call) => self.accepted(generation, call, now),
            Event::Refused(generation, complaint) => self.refused(generation, complaint, now),
        }
    }

    /// Takes what is to be told.
    pub(crate) fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// A bit for each group of places of which an acceptance is no news.
    pub(crate) fn heard(&self) -> u64 {
        let accepted = self.token.iter().flat_map(|token| &token.accepted);
        let heard = accepted.fold(0, |heard, call| heard | group(*call));
        let awaited = self.doubts.awaited();
        heard & !awaited.fold(0, |awaited, call| awaited | group(call))
    }

    /// The number and the life of the token that may be sent.
    pub(crate) fn fresh_at(&self, now: Timestamp) -> Option<(u64, Lifetime)> {
        let token = self.token.as_ref()?;
        let fresh = token.lifetime.is_fresh_at(now);
        fresh.then_some((token.generation, token.lifetime))
    }

    /// Whether a token of another process is better than what is here.
    pub(crate) fn wants_at(&self, now: Timestamp, other: &Fetched) -> bool {
        if self.dead.contains(&other.fingerprint) {
            return false;
        }
        let token = self.token.as_ref();
        // It comes back a little younger or older, by what two looks at two clocks differ.
        if token.is_some_and(|token| token.fingerprint == other.fingerprint) {
            return false;
        }
        let good = |token: &&Token| !token.refused && token.lifetime.is_fresh_at(now);
        let ours = token.filter(good);
        let ours = ours.map_or(Duration::ZERO, |token| {
            token.lifetime.expires_at.left_at(now)
        });
        let expires_at = other.sent.checked_add(other.life);
        expires_at.is_some_and(|at| at.left_at(now) > ours)
    }

    pub(crate) fn phase_at(&self, now: Timestamp) -> Phase {
        match &self.token {
            Some(token) if token.lifetime.is_fresh_at(now) => {
                if token.refused && self.doubts.is_hopeless() {
                    Phase::Refused
                } else if token.refused {
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
        let fresh = self.fresh_at(now).is_some();
        let token = self.token.as_ref().filter(|_| fresh);
        let (due, reason) = self.due_at(now).unwrap_or((Duration::ZERO, self.loss));
        Health {
            phase: self.phase_at(now),
            generation: self.generation,
            life_left: token.map(|token| token.lifetime.expires_at.left_at(now)),
            last_error: self.failure.as_ref().map(|failure| failure.error.clone()),
            next_attempt: due.max(self.quiet_at(now)),
            reason,
            refused_for: token
                .filter(|token| token.refused)
                .and(self.refused_since)
                .map(|since| since.age_at(now)),
            last_success: self.succeeded_at.map(|at| at.age_at(now)),
            budget_left: self.account.left_at(now.steady),
        }
    }

    fn asked(&mut self, now: Timestamp) -> Action {
        self.expire(now);
        if self.token.is_some() {
            return Action::Send;
        }
        if self.under_way.is_none()
            && let Some(error) = self.left_alone_at(now)
        {
            return Action::Fail(error);
        }
        self.wanted = true;
        Action::Wait
    }

    fn busy(&mut self, now: Timestamp) -> Action {
        self.expire(now);
        let token = self.token.as_ref();
        token.map_or(Action::Rest, |token| {
            Action::Look(token.lifetime.expires_at.left_at(now))
        })
    }

    fn timer(&mut self, now: Timestamp) -> Action {
        let busy = self.busy(now);
        if self.under_way.is_some() {
            return busy;
        }
        let Some((due, reason)) = self.due_at(now) else {
            return Action::Rest;
        };
        let wait = match self.token {
            // A spent budget is told to those who wait, when the request would be sent.
            None => due,
            Some(_) => due.max(self.quiet_at(now)),
        };
        if !wait.is_zero() {
            return Action::Look(busy.wait().map_or(wait, |expiry| expiry.min(wait)));
        }
        self.under_way = Some(reason);
        match reason {
            Reason::Refused => self.doubts.ask_at(now),
            // One try an hour, whether it succeeds or not.
            Reason::Unexplained => self.withdraw(),
            Reason::Start | Reason::Schedule | Reason::Expiry => {}
        }
        Action::Request
    }

    fn sending(&mut self, now: Timestamp) -> Action {
        let wait = self.account.wait_at(now.steady, self.need());
        if wait.is_zero() {
            self.account.spend_at(now.steady);
            return Action::Request;
        }
        Action::Fail(TokenError::new(Kind::OverBudget).with_retry_after(wait))
    }

    fn fetched(&mut self, fetched: Fetched, now: Timestamp) -> Action {
        let draw = (self.draw)();
        let planned = Lifetime::plan_at(now, fetched.sent, fetched.life, self.policy, draw);
        let Some(lifetime) = planned else {
            let over = TokenError::new(Kind::Malformed(
                "its token was expired on arrival, by the clock of this machine",
            ));
            return self.failed(&over, now);
        };
        let reason = self.under_way.take().unwrap_or(self.loss);
        if let Some(failure) = self.failure.take() {
            let down = failure.since.age_at(now);
            self.notices.push(Notice::EndpointIsBack(down));
        }
        self.backoff.succeed();
        self.wanted = false;
        self.succeeded_at = Some(now);
        if fetched.own {
            self.account.refund(fetched.life);
        }
        if let Some(token) = &mut self.token
            && token.refused
            && token.fingerprint == fetched.fingerprint
        {
            // No successor: whoever was refused with it would be refused again.
            token.lifetime = lifetime;
            let wait = self.doubts.repeat_at(now);
            token.ask = now.checked_add(wait).map(|at| (at, Reason::Refused));
            return Action::Use(token.generation, lifetime);
        }
        self.doubts.succeed();
        self.generation += 1;
        self.token = Some(Token {
            generation: self.generation,
            fingerprint: fetched.fingerprint,
            born: now,
            lifetime,
            accepted: Vec::new(),
            refused: false,
            by_hand: false,
            ask: None,
        });
        let (generation, life) = (self.generation, lifetime.expires_at.left_at(now));
        self.notices.push(if fetched.own {
            Notice::Renewed(generation, reason, life)
        } else {
            Notice::FromStore(generation, reason, life)
        });
        Action::Use(generation, lifetime)
    }

    fn failed(&mut self, error: &TokenError, now: Timestamp) -> Action {
        let reason = self.under_way.take().unwrap_or(self.loss);
        self.wanted = false;
        let before = self.failure.take();
        let spent = error.is_over_budget();
        let wait = if spent {
            // Nothing was asked, so nothing has failed.
            error.retry_after().unwrap_or_default()
        } else {
            let hint = error.retry_after();
            // Without credentials nothing was asked, and they may be there soon.
            let soon = error.is_transient() || error.is_missing_credentials();
            self.backoff.fail(soon, hint, (self.draw)())
        };
        let since = before.as_ref().map_or(now, |before| before.since);
        let why = before.as_ref().filter(|_| spent);
        let why = why.map_or(error, |before| &before.error);
        let error = why.failing_for(since.age_at(now)).with_retry_after(wait);
        // A change is told at once, and what goes on like this once a minute.
        let told = before.as_ref().filter(|before| {
            let alike = before.error.is_transient() == error.is_transient();
            alike && before.told.age_at(now) < A_MINUTE
        });
        let told = told.map_or_else(
            || {
                self.notices.push(Notice::Failed(error.clone(), reason));
                now
            },
            |before| before.told,
        );
        let until = now.steady.checked_add(wait).unwrap_or(now.steady);
        self.failure = Some(Failure {
            error: error.clone(),
            until,
            since,
            told,
        });
        Action::Fail(error)
    }

    fn accepted(&mut self, generation: u64, call: Call, now: Timestamp) -> Action {
        let Some(token) = self.token.as_mut().filter(|t| t.generation == generation) else {
            return Action::Rest;
        };
        let first = token.accepted.is_empty();
        if !token.accepted.contains(&call) && token.accepted.len() < PLACES {
            token.accepted.push(call);
        }
        self.doubts.accepted_at(now, call, first);
        if token.refused && !token.by_hand && self.doubts.is_cleared() {
            token.refused = false;
            token.ask = None;
        }
        if !token.refused
            && let Some(since) = self.refused_since.take()
        {
            let refused = since.age_at(now);
            self.notices
                .push(Notice::AcceptedAgain(generation, refused));
        }
        Action::Rest
    }

    fn refused(&mut self, generation: u64, complaint: Complaint, now: Timestamp) -> Action {
        let Some(token) = self.token.as_mut().filter(|t| t.generation == generation) else {
            // There is another; or there is none, and whoever was refused may wait for one as any
            // call does.
            return match self.asked(now) {
                Action::Send => Action::Superseded,
                Action::Fail(_) => Action::Rest,
                _ => Action::Wait,
            };
        };
        let age = token.born.age_at(now);
        let call = match complaint {
            Complaint::Unexplained => return self.courtesy(now),
            Complaint::Dead(call) => Some(call),
            Complaint::ByHand => {
                token.by_hand = true;
                None
            }
        };
        let wait = self.doubts.refused_at(
            now,
            Refusal {
                call,
                call_was_accepted: call.is_some_and(|call| token.accepted.contains(&call)),
                any_was_accepted: !token.accepted.is_empty(),
                age,
            },
        );
        let mixed = call.is_some_and(|call| self.doubts.is_mixed(call));
        if !token.refused && !mixed {
            token.refused = true;
            self.dead.truncate(DEAD - 1);
            self.dead.push_front(token.fingerprint);
            if !token.accepted.is_empty() || age >= A_MINUTE {
                // Its predecessor's refusal is another story.
                self.refused_since = None;
            }
            self.refused_since.get_or_insert(now);
            self.notices.push(Notice::Refused(generation, wait));
        }
        let at = now.checked_add(wait).unwrap_or(now);
        match &mut token.ask {
            Some((earlier, reason)) if earlier.left_at(now) <= wait => *reason = Reason::Refused,
            ask => *ask = Some((at, Reason::Refused)),
        }
        self.hold_at(now)
    }

    /// Asks for a token without need, at most once an hour.
    fn courtesy(&mut self, now: Timestamp) -> Action {
        let calm = self.courtesy.is_none_or(|at| at.age_at(now) >= HOURLY);
        if calm
            && self.quiet_at(now).is_zero()
            && let Some(token) = &mut self.token
        {
            self.courtesy = Some(now);
            match &mut token.ask {
                // What was to come later comes now, for its own reason: it is not tried just once.
                Some((at, _)) => *at = now,
                ask @ None => *ask = Some((now, Reason::Unexplained)),
            }
            self.notices.push(Notice::Courtesy(token.generation));
            return Action::Wait;
        }
        Action::Rest
    }

    /// Whether a refused call may wait for a successor, which is due now or under way.
    fn hold_at(&self, now: Timestamp) -> Action {
        let due = self.due_at(now).is_some_and(|(due, _)| due.is_zero());
        if self.under_way.is_some() || due && self.quiet_at(now).is_zero() {
            Action::Wait
        } else {
            Action::Rest
        }
    }

    /// How long it is until the next token is wanted, and why.
    fn due_at(&self, now: Timestamp) -> Option<(Duration, Reason)> {
        let Some(token) = &self.token else {
            return self.wanted.then_some((Duration::ZERO, self.loss));
        };
        let Lifetime {
            renew_at,
            expires_at,
        } = token.lifetime;
        let reason = if renew_at == expires_at {
            Reason::Expiry
        } else {
            Reason::Schedule
        };
        let renewal = (renew_at.left_at(now), reason);
        let ask = token.ask.map(|(at, reason)| (at.left_at(now), reason));
        Some(ask.filter(|ask| ask.0 <= renewal.0).unwrap_or(renewal))
    }

    /// How long it is until a token request may be made, whoever wants it.
    fn quiet_at(&self, now: Timestamp) -> Duration {
        let failure = self.failure.as_ref();
        let left_alone = failure.map_or(Duration::ZERO, |failure| {
            failure.until.saturating_duration_since(now.steady)
        });
        let budget = self.account.wait_at(now.steady, self.need());
        left_alone.max(budget)
    }

    fn left_alone_at(&self, now: Timestamp) -> Option<TokenError> {
        let failure = self.failure.as_ref()?;
        let wait = failure.until.checked_duration_since(now.steady)?;
        let error = failure.error.failing_for(failure.since.age_at(now));
        (!wait.is_zero()).then(|| error.with_retry_after(wait))
    }

    /// A token that works leaves one request of the budget for when there is none.
    fn need(&self) -> Need {
        match &self.token {
            Some(token) if !token.refused => Need::Renewal,
            Some(_) | None => Need::Token,
        }
    }

    fn expire(&mut self, now: Timestamp) {
        if self.fresh_at(now).is_none()
            && let Some(token) = self.token.take()
        {
            self.loss = Reason::Expiry;
            self.notices.push(Notice::Expired(token.generation));
        }
    }

    /// What was asked for without need is asked for once.
    fn withdraw(&mut self) {
        if let Some(token) = &mut self.token {
            token.ask = None;
        }
    }
}

/// The bit of the group that a call belongs to.
pub(crate) fn group(call: Call) -> u64 {
    1 << (call >> 58)
}

/// A service that does not say why it refuses costs 24 requests a day this way.
const HOURLY: Duration = Duration::from_secs(60 * 60);
/// A token that is refused older than this is not refused for what its predecessor was; and what goes
/// on failing is told of so often.
const A_MINUTE: Duration = Duration::from_secs(60);
/// How many places are remembered of those that accepted a token; there are 64 groups of them.
const PLACES: usize = 128;
/// How many refused tokens are remembered. A process that saves one which it got before the last of
/// these is very late.
const DEAD: usize = 4;
