//! What only those need who find no fresh token.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use http::HeaderValue;
use tokio::{sync::watch, time::Instant};

use super::{
    bearer::Bearer,
    entry::{Answer, Waiter},
    grant::{Issued, Means},
    sync::{mpsc, oneshot},
};
use crate::{
    Health, Reason, RefreshPolicy, TokenError,
    backoff::Backoff,
    budget::{Account, Need},
    error::token::Kind,
    gap::Gap,
    lifetime::Lifetime,
    moment::Moment,
};

/// The truth about the token, and the memory of what went wrong. [`Shared`] locks it.
///
/// [`Shared`]: super::shared::Shared
pub(super) struct Cold {
    /// The newest token, until it is known to be expired or dead.
    pub(super) token: Option<Arc<Bearer>>,
    /// The tokens that were found dead last: the store may still have them.
    dead: VecDeque<HeaderValue>,
    /// The number of the newest token; numbers are never used twice.
    pub(super) generation: u64,
    /// The number of the newest driver; an older one may live on in a runtime that nobody drives.
    pub(super) shift: u64,
    /// Where the driver listens; closed when it is gone.
    demands: Option<mpsc::UnboundedSender<Waiter>>,
    /// Closed when the last flight is over; `None` if there was none.
    pub(super) flight: Option<watch::Receiver<()>>,
    /// The last failure, while the endpoint is left alone for it.
    pub(super) refusal: Option<(TokenError, Instant)>,
    /// Why the last request failed, if none has succeeded since.
    last_error: Option<TokenError>,
    backoff: Backoff,
    pub(super) gap: Gap,
    /// When a token was last renewed for want of a role.
    pub(super) doubted_at: Option<Moment>,
    /// Why there is no token, for when one is asked for.
    pub(super) loss: Reason,
    account: Account,
}

// === impl Cold ===

impl Cold {
    pub(super) fn new(account: Account) -> Self {
        Self {
            token: None,
            dead: VecDeque::new(),
            generation: 0,
            shift: 0,
            demands: None,
            flight: None,
            refusal: None,
            last_error: None,
            backoff: Backoff::default(),
            gap: Gap::default(),
            doubted_at: None,
            loss: Reason::default(),
            account,
        }
    }

    pub(super) fn fresh_at(&self, now: Moment) -> Option<&Arc<Bearer>> {
        let token = self.token.as_ref()?;
        token.lifetime.is_fresh_at(now).then_some(token)
    }

    /// Drops a token that was found dead.
    pub(super) fn bury(&mut self) {
        if let Some(token) = self.token.take() {
            self.dead.truncate(DEAD.saturating_sub(1));
            self.dead.push_front(token.header().clone());
        }
        self.loss = Reason::Dead;
    }

    /// Whether a token of another process is better than what is here.
    pub(super) fn wants_at(&self, now: Moment, issued: &Issued) -> bool {
        if self.dead.contains(&issued.header) {
            return false;
        }
        let Some(token) = self.fresh_at(now) else {
            return true;
        };
        let Some(expires_at) = issued.sent.checked_add(issued.life) else {
            return false;
        };
        expires_at.left_at(now) > token.lifetime.expires_at.left_at(now)
    }

    pub(super) fn refused_at(&self, now: Instant) -> Option<TokenError> {
        let (error, until) = self.refusal.as_ref()?;
        let wait = until.checked_duration_since(now)?;
        (!wait.is_zero()).then(|| error.with_retry_after(wait))
    }

    /// How long it is until a token request may be made, whoever wants it.
    pub(super) fn quiet_at(&self, now: Moment) -> Duration {
        let left_alone = match &self.refusal {
            Some((_, until)) => until.saturating_duration_since(now.steady),
            None => Duration::ZERO,
        };
        self.account
            .wait_at(now.steady, self.need_at(now))
            .max(left_alone)
    }

    /// Spends one token request, or says why there is none to spend.
    pub(super) fn spend_at(&mut self, now: Moment) -> Result<(), TokenError> {
        let need = self.need_at(now);
        let wait = self.account.wait_at(now.steady, need);
        if wait.is_zero() {
            self.account.spend_at(now.steady);
            return Ok(());
        }
        Err(TokenError::new(Kind::OverBudget).with_retry_after(wait))
    }

    fn need_at(&self, now: Moment) -> Need {
        match self.fresh_at(now) {
            Some(_) => Need::Renewal,
            None => Need::Token,
        }
    }

    pub(super) fn attended(&self) -> bool {
        self.demands.as_ref().is_some_and(|d| !d.is_closed())
    }

    pub(super) fn hire(&mut self) -> mpsc::UnboundedReceiver<Waiter> {
        let (sender, demands) = mpsc::unbounded_channel();
        self.demands = Some(sender);
        self.shift = self.shift.saturating_add(1);
        demands
    }

    /// Sends the driver away: its waiters ask anew, and the next of them hires another.
    pub(super) fn dismiss(&mut self) {
        self.demands = None;
    }

    pub(super) fn demand(&self) -> oneshot::Receiver<Answer> {
        let (waiter, receiver) = oneshot::channel();
        if let Some(demands) = &self.demands {
            // If the driver has just gone, the waiter is dropped, and its receiver asks anew.
            drop(demands.send(waiter));
        }
        receiver
    }

    pub(super) fn publish_at(
        &mut self,
        now: Moment,
        issued: Issued,
        policy: RefreshPolicy,
    ) -> Result<Arc<Bearer>, TokenError> {
        let lifetime = Lifetime::plan_at(now, issued.sent, issued.life, policy, fastrand::f64())
            .ok_or_else(|| TokenError::new(Kind::Malformed("the token was expired on arrival")))?;
        if issued.means == Means::Request {
            self.account.refund(issued.life);
        }
        self.generation = self.generation.saturating_add(1);
        self.refusal = None;
        self.last_error = None;
        self.backoff.succeed();
        let life = (now, lifetime);
        let token = Bearer::new(&issued.header, self.generation, life);
        let token = Arc::new(token);
        self.token = Some(Arc::clone(&token));
        Ok(token)
    }

    pub(super) fn refuse_at(&mut self, now: Moment, error: &TokenError) -> TokenError {
        let wait = if error.is_over_budget() {
            // Nothing was asked, so nothing has failed.
            error.retry_after().unwrap_or_default()
        } else {
            let draw = fastrand::f64();
            self.backoff
                .fail(error.is_transient(), error.retry_after(), draw)
        };
        let error = error.with_retry_after(wait);
        self.last_error = Some(error.clone());
        self.refusal = now
            .steady
            .checked_add(wait)
            .map(|until| (error.clone(), until));
        error
    }

    pub(super) fn health_at(&self, now: Moment) -> Health {
        let token = self.fresh_at(now);
        let renewal = token.map_or(Duration::ZERO, |token| token.lifetime.renew_at.left_at(now));
        Health {
            generation: self.generation,
            age: token.map(|token| token.born.age_at(now)),
            life_left: token.map(|token| token.lifetime.expires_at.left_at(now)),
            last_error: self.last_error.clone(),
            next_attempt: renewal.max(self.quiet_at(now)),
            budget_left: self.account.left_at(now.steady),
        }
    }

    /// Why a token is asked for now.
    pub(super) fn reason_at(&self, now: Moment) -> Reason {
        match self.fresh_at(now) {
            Some(token) if !token.lifetime.renew_at.has_come_at(now) => Reason::Role,
            Some(_) => Reason::Schedule,
            None => self.loss,
        }
    }

    /// Forgets a refusal that other credentials may mend.
    pub(super) fn forgive(&mut self) {
        if let Some((error, _)) = &self.refusal
            && error.is_about_credentials()
        {
            self.refusal = None;
        }
    }
}

/// How many dead tokens are remembered. They are found dead a minute apart and more, and a process
/// that saves one which it got before the last of these is very late.
const DEAD: usize = 4;
