//! The shared part of a source: the slot that calls read, and the state behind one lock.
//!
//! The state makes all decisions. The slot is written under the lock, and a call with a settled token
//! takes no lock. A *flight* is one token request for all waiters. The *driver* is a task that polls
//! flights and starts renewals. Both hold the shared part weakly: the driver ends with the last handle,
//! or with the flight in progress at that time. If the runtime of the driver ends, the next waiter
//! starts another driver and another flight, because timers and sockets of the old runtime are dead.

use std::{
    fmt,
    future::pending,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, PoisonError, Weak, atomic::Ordering},
};

use futures_util::future::{BoxFuture, select};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::sync::{
    self, ArcSwapOption, AtomicU64, FutureExt as _, Handle, JoinHandle, Mutex, MutexGuard,
};
use crate::{
    AccessToken, Health, TokenError,
    clock::{Clock, Timestamp},
    error::{Kind, place},
    judge::Refresh,
    reply::Issued,
    request::Grant,
    state::{Action, Event, Lifetime, Notice, State},
};

/// The token that calls send.
#[derive(Debug)]
pub(crate) struct Bearer {
    pub(crate) generation: u64,
    pub(crate) token: AccessToken,
    lifetime: Lifetime,
}

/// A token request in flight. Every clone polls it.
pub(crate) type Flight = sync::Shared<BoxFuture<'static, Result<(), TokenError>>>;

/// The flight of a waiter. Its drop wakes the driver, because the last wake of the flight may have gone
/// to this waiter alone. So dropping a waiter changes nothing.
#[derive(Debug)]
pub(crate) struct Joined(pub(crate) Flight, watch::Sender<()>);

impl Drop for Joined {
    fn drop(&mut self) {
        self.1.send_replace(());
    }
}

/// The state that all handles of a source share.
pub(crate) struct Shared {
    /// The token in use, until its expiry is noticed. Written under the lock.
    slot: ArcSwapOption<Bearer>,
    /// The generation of the token that calls send without a read of the state; zero while the
    /// token is refused, due for renewal, or absent. Relaxed: no other memory depends on it, and a
    /// later call sees a change that this one misses.
    settled: AtomicU64,
    /// Held for arithmetic and for the start of a flight, never across an `.await`.
    locked: Mutex<Locked>,
    pub(crate) grant: Arc<Grant>,
    clock: Clock,
    this: Weak<Self>,
}

/// The part behind the lock.
pub(super) struct Locked {
    state: State,
    /// The last flight; it may have ended.
    flight: Option<Flight>,
    pub(super) driver: Option<JoinHandle<()>>,
    /// Wakes the driver. Its drop wakes the driver too, which then ends.
    wake: watch::Sender<()>,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(state: State, grant: Grant, clock: Clock) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            slot: ArcSwapOption::const_empty(),
            settled: AtomicU64::new(0),
            locked: Mutex::new(Locked {
                state,
                flight: None,
                driver: None,
                wake: watch::Sender::new(()),
            }),
            grant: Arc::new(grant),
            clock,
            this: Weak::clone(this),
        })
    }

    /// The token in use, if calls may send it without a look at the state.
    ///
    /// It reads only the wall clock, because the timer of the driver covers the steady one.
    #[inline]
    pub(crate) fn settled(&self) -> Option<Arc<Bearer>> {
        let slot = self.slot.load();
        let bearer = slot.as_ref().filter(|it| self.is_settled(it))?;
        (self.clock.wall() < bearer.lifetime.renew_at.wall).then(|| Arc::clone(bearer))
    }

    /// Whether this is still the token that calls may send.
    #[inline]
    pub(crate) fn is_settled(&self, bearer: &Bearer) -> bool {
        bearer.generation == self.settled.load(Ordering::Relaxed)
    }

    /// The token in use, if it is valid.
    #[cold]
    pub(crate) fn bearer(&self) -> Option<Arc<Bearer>> {
        let now = self.now();
        let bearer = self.slot.load_full();
        bearer.filter(|bearer| bearer.lifetime.is_valid_at(now))
    }

    /// Returns `None` if the token in use may be sent. If not, starts or joins a flight and returns it.
    ///
    /// The instant, if there is one, is the time from which the token in use may be sent even though
    /// the flight has not ended.
    pub(crate) fn enter(&self) -> Result<Option<(Joined, Option<Instant>)>, TokenError> {
        self.with(|locked, now| {
            let action = locked.state.on(Event::Needed, now);
            match action {
                Action::Fail(error) => Err(error),
                Action::Send => {
                    // If the driver ended with its runtime, this call starts the renewal.
                    self.renew_if_due(locked, now);
                    Ok(None)
                }
                action => {
                    let flight = self.follow(locked, action);
                    flight.map(Some).ok_or(Kind::NoRuntime.into())
                }
            }
        })
    }

    /// Records that a call with the token of this number was accepted.
    #[inline]
    pub(crate) fn accept(&self, generation: u64) {
        if self.settled.load(Ordering::Relaxed) == 0 {
            self.with(|locked, now| locked.state.on(Event::Accepted(generation), now));
        }
    }

    /// Records that a call with the token of this number was refused, and returns the flight that
    /// replaces the token, if there is one.
    pub(crate) fn refuse(&self, generation: u64) -> Result<Joined, Refresh> {
        self.with(|locked, now| {
            let action = locked.state.on(Event::Refused(generation), now);
            if let Action::Superseded = action {
                return Err(Refresh::Replaced);
            }
            let flight = self.follow(locked, action);
            flight.map(|(flight, _)| flight).ok_or(Refresh::None)
        })
    }

    /// Whether a newer token than the one of this number has come.
    pub(crate) fn supersedes(&self, generation: u64) -> bool {
        self.lock().state.generation() > generation
    }

    /// Whether a token from the store is better than the one in use.
    fn prefers(&self, issued: &Issued) -> bool {
        let now = self.now();
        let is_same = |bearer: Arc<Bearer>| bearer.token.header() == issued.token.header();
        !self.bearer().is_some_and(is_same) && self.lock().state.prefers_at(now, &issued.fetched)
    }

    /// Records the outcome of a flight.
    fn settle(&self, outcome: Result<Issued, TokenError>) -> Result<(), TokenError> {
        self.with(|locked, now| {
            let (event, token) = match outcome {
                Ok(Issued { token, fetched }) => (Event::Fetched(fetched), Some(token)),
                Err(error) => (Event::Failed(error), None),
            };
            match (locked.state.on(event, now), token) {
                (Action::Use(generation, lifetime), Some(token)) => {
                    self.slot.store(Some(Arc::new(Bearer {
                        generation,
                        token,
                        lifetime,
                    })));
                    Ok(())
                }
                (Action::Fail(error), _) => Err(error),
                _ => Ok(()),
            }
        })
    }

    /// Whether a flight has ended, or is the current flight and has a driver.
    pub(crate) fn is_driven(&self, flight: &Flight) -> bool {
        let locked = self.lock();
        let is_current = || locked.flight.as_ref().is_some_and(|it| it.ptr_eq(flight));
        flight.peek().is_some() || locked.is_driven() && is_current()
    }

    /// Abandons a flight that makes no progress, because its runtime no longer runs.
    pub(crate) fn abandon(&self, flight: &Flight) -> TokenError {
        let error = TokenError::new(Kind::NoRuntime).at(self.grant.uri());
        let abandoned = self.with(|locked, now| {
            let abandoned = locked.flight.take_if(|it| it.ptr_eq(flight));
            if abandoned.is_some() {
                locked.driver = None;
                locked.state.on(Event::Failed(error.clone()), now);
            }
            abandoned
        });
        // Outside of the lock, because it drops the request of the HTTP client.
        drop(abandoned);
        error
    }

    /// The current flight, if it has not ended.
    pub(crate) fn flight(&self) -> Option<Joined> {
        let locked = self.lock();
        let flight = locked.pending().filter(|_| locked.is_driven())?;
        Some(Joined(flight, locked.wake.clone()))
    }

    pub(crate) fn health(&self) -> Health {
        let now = self.now();
        let mut health = self.lock().state.health_at(now);
        health.endpoint = place(self.grant.uri());
        health
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Starts or joins a flight, as the action requires.
    fn follow(&self, locked: &mut Locked, action: Action) -> Option<(Joined, Option<Instant>)> {
        let until = match action {
            Action::Request | Action::Join => None,
            Action::JoinUntil(until) => Some(until),
            _ => return None,
        };
        let is_driven = self.drive(locked);
        if let Action::Request = action {
            locked.flight = Some(self.begin());
        }
        if !is_driven {
            return None;
        }
        locked.wake.send_replace(());
        Some((Joined(locked.flight.clone()?, locked.wake.clone()), until))
    }

    /// Creates a flight. It fetches a token, records the outcome, and saves the token before its
    /// waiters return, because a program may end as soon as it has a token.
    fn begin(&self) -> Flight {
        let (this, grant) = (Weak::clone(&self.this), Arc::clone(&self.grant));
        let flight = async move {
            let prefers = |issued: &Issued| this.upgrade().is_some_and(|this| this.prefers(issued));
            let issued = AssertUnwindSafe(grant.fetch(prefers)).catch_unwind().await;
            let issued = issued.unwrap_or_else(|_| Err(Kind::Panicked.into()));
            let own = issued.as_ref().ok().filter(|it| it.fetched.is_own).cloned();
            let outcome = match this.upgrade() {
                Some(this) => this.settle(issued),
                None => Err(Kind::NoRuntime.into()),
            };
            grant.save(own.filter(|_| outcome.is_ok())).await;
            outcome
        };
        flight.boxed().shared()
    }

    /// Starts the renewal if it is due.
    fn renew_if_due(&self, locked: &mut Locked, now: Timestamp) {
        self.drive(locked);
        let action = locked.state.on(Event::Timer, now);
        drop(self.follow(locked, action));
    }

    /// Spawns the driver if there is none. Outside of a runtime there is none.
    ///
    /// A flight is bound to the runtime of its driver: another driver starts another flight. A runtime
    /// may end at any moment, so one look decides both.
    fn drive(&self, locked: &mut Locked) -> bool {
        if locked.is_driven() {
            return true;
        }
        locked.flight = locked.pending().map(|_| self.begin());
        let Ok(runtime) = Handle::try_current() else {
            return false;
        };
        let (this, wake) = (Weak::clone(&self.this), locked.wake.subscribe());
        locked.driver = Some(runtime.spawn(run(this, wake)));
        true
    }

    /// The next step of the driver: a flight to poll, or the instant of the next step.
    fn step(&self) -> Result<Flight, Option<Instant>> {
        self.with(|locked, now| {
            let action = locked.state.on(Event::Timer, now);
            let wait = match action {
                Action::Sleep(wait) => Some(wait),
                _ => None,
            };
            if let Action::Request = action {
                locked.flight = Some(self.begin());
            }
            let look_at = wait.and_then(|wait| now.steady.checked_add(wait));
            locked.pending().ok_or(look_at)
        })
    }

    /// Runs `work` under the lock and updates the slot. Emits the log lines after the lock, because a
    /// subscriber may call the source.
    fn with<T>(&self, work: impl FnOnce(&mut Locked, Timestamp) -> T) -> T {
        let (mut locked, now) = (self.lock(), self.now());
        let done = work(&mut locked, now);
        if locked.state.valid_at(now).is_none() {
            self.slot.store(None);
        }
        let settled = locked.state.settled_at(now);
        self.settled.store(settled.unwrap_or(0), Ordering::Relaxed);
        let notices = locked.state.take_notices();
        drop(locked);
        notices.into_iter().for_each(Notice::emit);
        done
    }

    /// Poison is ignored, because a panic under the lock leaves the state consistent.
    pub(super) fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

// === impl Locked ===

impl Locked {
    /// The flight, if it has not ended.
    fn pending(&self) -> Option<Flight> {
        let flight = self.flight.as_ref();
        flight.filter(|flight| flight.peek().is_none()).cloned()
    }

    fn is_driven(&self) -> bool {
        let driver = self.driver.as_ref();
        driver.is_some_and(|driver| !driver.is_finished())
    }
}

/// The driver: polls flights to their end, and starts renewals on time.
async fn run(shared: Weak<Shared>, mut wake: watch::Receiver<()>) {
    while let Some(step) = shared.upgrade().map(|shared| shared.step()) {
        match step {
            Ok(flight) => {
                // The wakes come first, so that each of them is followed by a poll of the flight.
                let wakes = async {
                    while wake.changed().await.is_ok() {}
                    pending::<()>().await;
                };
                drop(select(pin!(wakes), flight).await);
            }
            Err(Some(until)) => drop(timeout_at(until, wake.changed()).await),
            Err(None) => drop(wake.changed().await),
        }
    }
}
