//! The shared part of a source: the slot that calls read, and the state behind a lock.
//!
//! Callers and the task apply events to the state, which makes all decisions. Each step publishes its
//! result: the token in the slot, and the numbers of the flights that have begun and ended. A call with
//! a settled token reads the slot and the wall clock, and takes no lock. All others follow the numbers.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use tokio::{
    runtime::Handle,
    sync::watch,
    time::{Instant, timeout_at},
};

use super::task::{Step, Task};
use crate::{
    clock::{Clock, Timestamp},
    error::{Kind, TokenError, place},
    health::Health,
    judge::Refresh,
    request::{Fetch, longest_flight},
    state::{Action, Bearer, Event, Notice, State},
};

pub(crate) struct Shared {
    slot: ArcSwapOption<Bearer>,
    /// The number of the token in the slot while calls may send it without a look at the state; if not,
    /// zero. The order of the two writes is free: a call that misses a change is one that was a moment
    /// earlier.
    settled: AtomicU64,
    /// Held for arithmetic, never across an `.await`.
    locked: Mutex<Locked>,
    /// How many flights have begun, for the task.
    begun: watch::Sender<u64>,
    /// How many flights have ended, for those who wait.
    ended: watch::Sender<u64>,
    fetch: Arc<dyn Fetch>,
    clock: Clock,
}

struct Locked {
    state: State,
    /// The number of the task, while there is one.
    task: Option<u64>,
    /// How many tasks there have been.
    tasks: u64,
}

/// The decision on a call that has no settled token.
enum Entry {
    Send(Arc<Bearer>),
    /// Wait for this flight. With an instant, the token in use may be sent from then on.
    Wait(u64, Option<Instant>),
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(state: State, fetch: Arc<dyn Fetch>, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            slot: ArcSwapOption::const_empty(),
            settled: AtomicU64::new(0),
            locked: Mutex::new(Locked {
                state,
                task: None,
                tasks: 0,
            }),
            begun: watch::Sender::new(0),
            ended: watch::Sender::new(0),
            fetch,
            clock,
        })
    }

    /// The token in use, if calls may send it without a look at the state.
    ///
    /// It reads only the wall clock, because the timer of the task covers the steady one.
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
        let now = self.clock.now();
        let bearer = self.slot.load_full();
        bearer.filter(|bearer| bearer.lifetime.is_valid_at(now))
    }

    /// Waits for a token that may be sent.
    pub(crate) async fn wait(self: Arc<Self>) -> Result<Arc<Bearer>, TokenError> {
        loop {
            let (flight, until) = match self.enter()? {
                Entry::Send(bearer) => return Ok(bearer),
                Entry::Wait(flight, until) => (flight, until),
            };
            let longest = longest_flight(&*self.fetch).min(LONGEST);
            let end = until.unwrap_or_else(|| self.now() + longest);
            // After a flight the state is read again: the caller may be polled long after its end.
            let waited = timeout_at(end, self.ended(flight)).await;
            if waited.is_err() && until.is_none() {
                return Err(self.abandon(flight));
            }
        }
    }

    /// Waits until this flight has ended.
    pub(crate) async fn ended(&self, flight: u64) {
        let mut ended = self.ended.subscribe();
        drop(ended.wait_for(|ended| *ended >= flight).await);
    }

    /// The number of the flight that has not ended.
    pub(crate) fn in_flight(&self) -> Option<u64> {
        self.lock().state.in_flight()
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
    pub(crate) fn refuse(self: &Arc<Self>, generation: u64) -> Result<u64, Refresh> {
        let flight = self.with(|locked, now| {
            let action = locked.state.on(Event::Refused(generation), now);
            match action {
                Action::Superseded => Err(Refresh::Replaced),
                Action::Request | Action::Join => Ok(locked.state.flights()),
                Action::SendAfter(wait) => Err(Refresh::After(wait)),
                _ => Err(Refresh::None),
            }
        })?;
        self.drive().then_some(flight).ok_or(Refresh::None)
    }

    /// Whether a newer token than the one of this number has come.
    pub(crate) fn supersedes(&self, generation: u64) -> bool {
        self.lock().state.generation() > generation
    }

    pub(crate) fn health(&self) -> Health {
        let now = self.clock.now();
        let mut health = self.lock().state.health_at(now);
        health.endpoint = place(self.fetch.settings().uri());
        health
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now().steady
    }

    /// The next step of the task of this number; `None` if another one has taken its place.
    pub(super) fn step(&self, task: u64) -> Option<Step> {
        self.with(|locked, now| {
            if locked.task != Some(task) {
                return None;
            }
            let action = locked.state.on(Event::Timer, now);
            let current = || locked.state.current_at(now);
            let flight = locked.state.in_flight();
            Some(match (flight, action) {
                (Some(flight), _) => Step::Fetch(flight, Arc::clone(&self.fetch), current()),
                (None, Action::Sleep(wait)) => Step::Sleep(now.steady.checked_add(wait)),
                (None, _) => Step::Sleep(None),
            })
        })
    }

    /// Records the result of a flight, unless it was abandoned.
    pub(super) fn settle(&self, flight: u64, event: Event) {
        self.with(|locked, now| {
            if locked.state.in_flight() == Some(flight) {
                locked.state.on(event, now);
            }
        });
    }

    /// Records that the task of this number has ended with its runtime.
    pub(super) fn lose(&self, task: u64) {
        self.with(|locked, now| {
            if locked.task.take_if(|it| *it == task).is_some() {
                locked.state.on(Event::Lost, now);
            }
        });
    }

    /// Decides on a call that has no settled token.
    fn enter(self: &Arc<Self>) -> Result<Entry, TokenError> {
        let entry = self.with(|locked, now| {
            let state = &mut locked.state;
            let action = state.on(Event::Needed, now);
            match (action, state.in_use_at(now).cloned()) {
                (Action::Fail(error), _) => Err(error),
                (Action::Send, Some(bearer)) => {
                    // The task that would renew it may have ended with its runtime.
                    state.on(Event::Timer, now);
                    Ok(Entry::Send(bearer))
                }
                (Action::JoinUntil(until), _) => Ok(Entry::Wait(state.flights(), Some(until))),
                _ => Ok(Entry::Wait(state.flights(), None)),
            }
        })?;
        let is_driven = self.drive();
        match entry {
            Entry::Wait(..) if !is_driven => Err(Kind::NoRuntime.into()),
            entry => Ok(entry),
        }
    }

    /// Makes sure that there is a task for the flight. Outside of a runtime there is none, nor in one
    /// that has ended, and the flight is lost.
    fn drive(self: &Arc<Self>) -> bool {
        let is_driven = Handle::try_current().is_ok_and(|runtime| {
            let mut locked = self.lock();
            if locked.task.is_some() {
                return true;
            }
            locked.tasks += 1;
            let number = locked.tasks;
            locked.task = Some(number);
            // A runtime that has ended drops the task at once, and its drop takes the lock.
            drop(locked);
            let task = Task::new(Arc::downgrade(self), number, self.begun.subscribe());
            !runtime.spawn(task.run()).is_finished()
        });
        if !is_driven {
            self.with(|locked, now| {
                if locked.task.is_none() {
                    locked.state.on(Event::Lost, now);
                }
            });
        }
        is_driven
    }

    /// Abandons a flight that makes no progress, because its runtime no longer runs. The next call
    /// starts another task.
    fn abandon(&self, flight: u64) -> TokenError {
        let error = TokenError::new(Kind::NoRuntime).at(self.fetch.settings().uri());
        self.with(|locked, now| {
            if locked.state.in_flight() == Some(flight) {
                locked.task = None;
                if let Action::Fail(error) = locked.state.on(Event::Failed(error.clone()), now) {
                    return error;
                }
            }
            error
        })
    }

    /// Runs `work` under the lock, and publishes what follows. Emits the log lines after the lock,
    /// because a subscriber may call the source.
    fn with<T>(&self, work: impl FnOnce(&mut Locked, Timestamp) -> T) -> T {
        let (mut locked, now) = (self.lock(), self.clock.now());
        let done = work(&mut locked, now);
        let state = &mut locked.state;
        self.slot.store(state.in_use_at(now).cloned());
        let settled = state.settled_at(now).unwrap_or(0);
        self.settled.store(settled, Ordering::Relaxed);
        let notices = state.take_notices();
        let begun = state.flights();
        let ended = begun.saturating_sub(state.in_flight().is_some().into());
        drop(locked);
        for (flights, count) in [(&self.begun, begun), (&self.ended, ended)] {
            // Another thread may have sent a higher number since the lock.
            flights.send_if_modified(|sent| mem::replace(sent, count.max(*sent)) < count);
        }
        notices.into_iter().for_each(Notice::emit);
        done
    }

    #[cfg(test)]
    pub(super) fn hold_lock(&self) -> impl Drop + '_ {
        self.lock()
    }

    /// Poison is ignored, because a panic under the lock leaves the state consistent.
    fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

/// The longest wait. It keeps the sum with the clock from overflow.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
