//! What the handles and the driver share: the slot, and the cold state behind it.
//!
//! The slot is filled in this file and nowhere else: that only a driver can fill it is what makes
//! the two reads on the hot path right.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwapOption, Guard};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    bearer::Bearer,
    cold::Cold,
    driver::Driver,
    grant::{Grant, Issued},
    keyring::Keyring,
};
use crate::{
    Budget, Event, Health, Policy, Provider, Reason, TokenError, budget::Account, clock::Clock,
    error::token::Kind, event::Listener, moment::Moment,
};

/// The outcome of a flight, as each waiter gets it.
pub(super) type Answer = Result<(), TokenError>;
/// The way to one waiter.
pub(super) type Waiter = oneshot::Sender<Answer>;

/// One token, one driver, any number of readers.
pub(super) struct Shared {
    /// The token that may be sent without a look at the clock. It is full only while a driver
    /// attends to it, who empties it at expiry.
    slot: ArcSwapOption<Bearer>,
    /// Whether the slot is full: a hint that makes readiness cheaper than a load of the slot.
    fresh: AtomicBool,
    /// Everything else. Whoever writes `slot` or `fresh` holds this lock; it is never held across
    /// an `.await`, nor while a task is spawned or a waiter woken.
    cold: Mutex<Cold>,
    grant: Arc<dyn Grant>,
    settings: Settings,
}

/// What the owner of the handle has chosen.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) provider: Provider,
    pub(super) timeout: Duration,
    pub(super) policy: Policy,
    pub(super) budget: Budget,
    pub(super) clock: Clock,
    pub(super) listener: Listener,
}

/// What a caller finds who looks for a token.
pub(super) enum Entry {
    /// There is one.
    Fresh,
    /// There is none, and this is why nobody asks for one now.
    Refused(TokenError),
    /// It has been asked for, of the driver of this number.
    Waiting(oneshot::Receiver<Answer>, u64),
}

/// What the driver does next.
pub(super) enum Next {
    /// Renew the token now.
    Renew,
    /// Look again then, or when somebody asks.
    Sleep(Instant),
    /// Nothing, until somebody asks.
    Idle,
    /// Nothing ever again: another driver has taken over.
    End,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(grant: Arc<dyn Grant>, settings: Settings) -> Self {
        Self {
            slot: ArcSwapOption::const_empty(),
            fresh: AtomicBool::new(false),
            cold: Mutex::new(Cold::new(Account::new(settings.budget))),
            grant,
            settings,
        }
    }

    /// Relaxed is enough: this is a hint, and `attended` decides.
    pub(super) fn is_fresh(&self) -> bool {
        self.fresh.load(Ordering::Relaxed)
    }

    pub(super) fn attended(&self) -> Guard<Option<Arc<Bearer>>> {
        self.slot.load()
    }

    pub(super) fn unattended(&self) -> Option<Arc<Bearer>> {
        let now = self.now();
        self.lock().fresh_at(now).cloned()
    }

    /// Looks for a token, and joins or starts the flight that brings one.
    pub(super) fn enter(self: &Arc<Self>) -> Entry {
        let now = self.now();
        let mut cold = self.lock();
        let fresh = cold.fresh_at(now).is_some();
        if !fresh && let Some(error) = cold.refused_at(now.steady) {
            return Entry::Refused(error);
        }
        let hired = match (cold.attended(), Handle::try_current()) {
            (true, _) => None,
            (false, Ok(runtime)) => Some((runtime, cold.hire())),
            (false, Err(_)) if fresh => None,
            (false, Err(_)) => return Entry::Refused(TokenError::new(Kind::NoRuntime)),
        };
        let entry = if fresh {
            Entry::Fresh
        } else {
            Entry::Waiting(cold.demand(), cold.shift)
        };
        let shift = cold.shift;
        // A runtime that is shutting down drops the task at once, and the driver's drop locks.
        drop(cold);
        if let Some((runtime, demands)) = hired {
            let Settings {
                provider,
                timeout,
                clock,
                ..
            } = &self.settings;
            let driver = Driver::new(
                Arc::downgrade(self),
                Arc::clone(&self.grant),
                Keyring::new(provider.clone(), *timeout),
                clock.clone(),
                (demands, shift),
            );
            drop(runtime.spawn(driver.run()));
        }
        entry
    }

    /// Brings the slot up to date, and says what is due. Only a running driver may call this: it
    /// is the promise that somebody empties the slot in time.
    pub(super) fn attend(&self, shift: u64) -> Next {
        let now = self.now();
        let mut cold = self.lock();
        if cold.shift != shift {
            return Next::End;
        }
        let Some(token) = cold.fresh_at(now) else {
            let expired = cold.token.take().map(|token| token.generation);
            self.empty();
            if let Some(generation) = expired {
                cold.loss = Reason::Expiry;
                drop(cold);
                self.tell(&Event::Expired { generation });
            }
            return Next::Idle;
        };
        let lifetime = token.lifetime;
        if !self.is_fresh() {
            self.fill(Arc::clone(token));
        }
        let wait = lifetime.renew_at.left_at(now).max(cold.quiet_at(now));
        if wait.is_zero() {
            return Next::Renew;
        }
        let wait = wait.min(lifetime.expires_at.left_at(now)).min(BEAT);
        // Beyond the end of time there is nothing to wait for.
        now.steady.checked_add(wait).map_or(Next::Idle, Next::Sleep)
    }

    /// Until when the token in use needs no look, if there is one.
    pub(super) fn look_at(&self) -> Option<Instant> {
        let now = self.now();
        let expiry = self.lock().token.as_ref()?.lifetime.expires_at;
        now.steady.checked_add(expiry.left_at(now).min(BEAT))
    }

    /// Asks for leave to make one token request.
    pub(super) fn depart(&self) -> Result<(), TokenError> {
        let now = self.now();
        self.lock().spend_at(now)
    }

    /// Why a token is asked for now, and when this is. `None` if another driver has taken over.
    pub(super) fn reason(&self, shift: u64) -> Option<(Reason, Moment)> {
        let now = self.now();
        let cold = self.lock();
        (cold.shift == shift).then(|| (cold.reason_at(now), now))
    }

    pub(super) fn health(&self) -> Health {
        let now = self.now();
        self.lock().health_at(now)
    }

    pub(super) fn tell(&self, event: &Event) {
        self.settings.listener.tell(event);
    }

    /// There are other credentials than those that were refused.
    pub(super) fn forgive(&self) {
        self.lock().forgive();
        self.tell(&Event::CredentialsChanged);
    }

    /// Records the outcome of a flight and returns it with everyone who waits for it.
    ///
    /// The waiters are collected under the same lock as the record is made: whoever is not among
    /// them enters later, and finds the record. `None` if another driver has taken over: what it
    /// has found since must stand.
    pub(super) fn settle(
        &self,
        outcome: Result<Issued, TokenError>,
        (reason, since): (Reason, Moment),
        (demands, shift): (&mut mpsc::UnboundedReceiver<Waiter>, u64),
    ) -> Option<(Answer, Vec<Waiter>)> {
        let now = self.now();
        let mut cold = self.lock();
        if cold.shift != shift {
            return None;
        }
        let published =
            outcome.and_then(|issued| cold.publish_at(now, issued, self.settings.policy));
        let (answer, event) = match published {
            Ok(token) => {
                let event = Event::Issued {
                    generation: token.generation,
                    reason,
                    took: since.age_at(now),
                    life: token.lifetime.expires_at.left_at(now),
                };
                self.fill(token);
                (Ok(()), event)
            }
            Err(error) => {
                let error = cold.refuse_at(now, &error);
                (Err(error.clone()), Event::Failed { error, reason })
            }
        };
        let waiters = std::iter::from_fn(|| demands.try_recv().ok()).collect();
        drop(cold);
        self.tell(&event);
        Some((answer, waiters))
    }

    /// The driver is gone: from here on the token is used by the clock, until there is another.
    pub(super) fn abandon(
        &self,
        (demands, shift): (&mut mpsc::UnboundedReceiver<Waiter>, u64),
        panicked: bool,
    ) {
        let now = self.now();
        let mut cold = self.lock();
        demands.close();
        if cold.shift != shift {
            return;
        }
        self.empty();
        if panicked {
            // Those who wait ask anew at once; without a refusal, a client that always panics
            // would be called in a loop.
            cold.refuse_at(now, &TokenError::new(Kind::Transport));
        }
    }

    /// Gives up the driver of this number, which has not answered for longer than any flight
    /// takes: its runtime is kept, and nobody drives it.
    pub(super) fn relieve(&self, shift: u64) {
        let mut cold = self.lock();
        if cold.shift == shift {
            cold.dismiss();
            self.empty();
            drop(cold);
            tracing::warn!("the runtime that asks for tokens stands still: another takes over");
        }
    }

    /// Longer than any flight: each key may take a timeout to come, and another to be tried.
    pub(super) fn patience(&self) -> Duration {
        let Settings {
            provider, timeout, ..
        } = &self.settings;
        let keys = u32::try_from(provider.sources().len()).unwrap_or(u32::MAX);
        timeout.saturating_mul(keys.saturating_mul(2).saturating_add(1))
    }

    pub(super) fn now(&self) -> Moment {
        self.settings.clock.now()
    }

    fn fill(&self, token: Arc<Bearer>) {
        self.slot.store(Some(token));
        self.fresh.store(true, Ordering::Relaxed);
    }

    pub(super) fn empty(&self) {
        self.fresh.store(false, Ordering::Relaxed);
        self.slot.store(None);
    }

    /// A panic under the lock leaves no half-made state, so poison is no reason to stop.
    pub(super) fn lock(&self) -> MutexGuard<'_, Cold> {
        self.cold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often the driver looks at the clocks while a token is in use, which bounds how long the end
/// of a suspension, or a step of the wall clock, goes unnoticed. A look costs a microsecond.
const BEAT: Duration = Duration::from_secs(5);
