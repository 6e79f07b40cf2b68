//! The owner of the state: publishes the token that calls read, and runs the flights.
//!
//! Callers and the task apply events to the state, which makes all decisions. Each step publishes its result: the token
//! in the slot, and whether a flight has begun or ended. With a settled token, a call reads the slot and the wall
//! clock, and takes no lock. Every other call waits for the end of its flight.

use std::{
    fmt,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwapOption;
use futures_util::FutureExt as _;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::{
    clock::{Clock, Timestamp},
    error::{Kind, place},
    health::Health,
    request::{Fetch, fly},
    state::{Action, Bearer, Current, Event, Notice, State},
};

pub(crate) struct Shared {
    slot: ArcSwapOption<Bearer>,
    /// Number of the token in the slot while calls may send it without a look at the state; zero while they may not.
    /// Calls may see the new slot before the new number, or after it: one that sees an old value acts like a call a
    /// moment earlier.
    settled: AtomicU64,
    /// Locked for arithmetic, never across an `.await`.
    locked: Mutex<Locked>,
    /// Notified when a flight begins or ends, or the last handle is gone.
    changed: Arc<Notify>,
    pub(crate) fetch: Arc<dyn Fetch>,
    clock: Clock,
}

pub(crate) struct Locked {
    pub(crate) state: State,
    /// Number of the task, while there is one.
    pub(crate) task: Option<u64>,
    /// How many tasks there have been.
    pub(crate) tasks: u64,
}

/// Next step of the task.
enum Step {
    /// Run the flight of this number.
    Fetch {
        flight: u64,
        fetch: Arc<dyn Fetch>,
        current: Option<Current>,
        /// Digest of the refused credentials, if only others may be sent.
        refused: Option<u16>,
    },
    /// Sleep until this instant, or until a flight begins.
    Sleep(Option<Instant>),
}

/// Runs one flight after another, and sleeps between them.
///
/// It holds the shared part weakly, so it ends with the last handle, after the flight in progress.
pub(crate) struct Task {
    shared: Weak<Shared>,
    number: u64,
    changed: Arc<Notify>,
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
            changed: Arc::default(),
            fetch,
            clock,
        })
    }

    /// Returns the token in use, if calls may send it without a look at the state.
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

    /// Returns the token in use, if it is valid.
    #[cold]
    pub(crate) fn bearer(&self) -> Option<Arc<Bearer>> {
        let now = self.clock.now();
        let bearer = self.slot.load_full();
        bearer.filter(|bearer| bearer.lifetime.is_valid_at(now))
    }

    /// Waits until this flight has ended.
    pub(crate) async fn ended(&self, flight: u64) {
        loop {
            // Created before the state is read, so that no end is missed between the two.
            let changed = self.changed.notified();
            if self.in_flight() != Some(flight) {
                return;
            }
            changed.await;
        }
    }

    /// Returns the number of the flight that has not ended.
    pub(crate) fn in_flight(&self) -> Option<u64> {
        self.lock().state.in_flight()
    }

    /// Records that a call with the token of this number was accepted.
    #[inline]
    pub(crate) fn accept(&self, generation: u64) {
        if self.settled.load(Ordering::Relaxed) != generation {
            self.with(|locked, now| locked.state.on(Event::Accepted(generation), now));
        }
    }

    /// Whether the token of this number was never accepted, and so may be too young.
    pub(crate) fn is_untried(&self, generation: u64) -> bool {
        self.lock().state.is_untried(generation)
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

    /// Returns the next step of the task of this number; `None` if another one has taken its place.
    fn step(&self, task: u64) -> Option<Step> {
        self.with(|locked, now| {
            if locked.task != Some(task) {
                return None;
            }
            let action = locked.state.on(Event::Timer, now);
            let flight = locked.state.in_flight();
            Some(match (flight, action) {
                (Some(flight), _) => Step::Fetch {
                    flight,
                    fetch: Arc::clone(&self.fetch),
                    current: locked.state.current_at(now),
                    refused: locked.state.refused_at(now),
                },
                (None, Action::Sleep(wait)) => Step::Sleep(now.steady.checked_add(wait)),
                (None, _) => Step::Sleep(None),
            })
        })
    }

    /// Records the result of a flight, unless it was abandoned.
    fn settle(&self, flight: u64, event: Event) {
        self.with(|locked, now| {
            if locked.state.in_flight() == Some(flight) {
                locked.state.on(event, now);
            }
        });
    }

    /// Records that the task of this number has ended with its runtime.
    fn lose(&self, task: u64) {
        self.with(|locked, now| {
            if locked.task.take_if(|it| *it == task).is_some() {
                locked.state.on(Event::Lost, now);
            }
        });
    }

    /// Runs `work` under the lock, and publishes what follows. Emits the log lines after the lock,
    /// because a subscriber may call the source.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Locked, Timestamp) -> T) -> T {
        let (mut locked, now) = (self.lock(), self.clock.now());
        let before = locked.state.in_flight();
        let done = work(&mut locked, now);
        let state = &mut locked.state;
        self.slot.store(state.in_use_at(now).cloned());
        let settled = state.settled_at(now).unwrap_or(0);
        self.settled.store(settled, Ordering::Relaxed);
        let notices = state.take_notices();
        let has_changed = state.in_flight() != before;
        drop(locked);
        if has_changed {
            self.changed.notify_waiters();
        }
        notices.into_iter().for_each(Notice::emit);
        done
    }

    #[cfg(test)]
    pub(crate) fn hold_lock(&self) -> impl Drop + '_ {
        self.lock()
    }

    /// Locks the state. Poison is ignored, because a panic under the lock leaves the state consistent.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the task, which then ends.
impl Drop for Shared {
    fn drop(&mut self) {
        self.changed.notify_waiters();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

// === impl Task ===

impl Task {
    pub(crate) fn new(shared: &Arc<Shared>, number: u64) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            number,
            changed: Arc::clone(&shared.changed),
        }
    }

    pub(crate) async fn run(self) {
        loop {
            // Created before the state is read, so that no flight is missed between the two.
            let changed = self.changed.notified();
            let Some(step) = self.step() else {
                return;
            };
            match step {
                Step::Fetch {
                    flight,
                    fetch,
                    current,
                    refused,
                } => {
                    let flown = AssertUnwindSafe(fly(&*fetch, current, refused)).catch_unwind();
                    let event = match flown.await {
                        Ok(Ok(Some(issued))) => Event::Fetched(issued),
                        Ok(Ok(None)) => Event::Unchanged,
                        Ok(Err(error)) => Event::Failed(error),
                        Err(_) => Event::Failed(Kind::Panicked.into()),
                    };
                    if let Some(shared) = self.shared.upgrade() {
                        shared.settle(flight, event);
                    }
                }
                Step::Sleep(Some(until)) => {
                    drop(timeout_at(until, changed).await);
                }
                Step::Sleep(None) => changed.await,
            }
        }
    }

    fn step(&self) -> Option<Step> {
        self.shared.upgrade()?.step(self.number)
    }
}

/// If its runtime ends, the task is dropped at any of its awaits, and the next caller starts
/// another one.
impl Drop for Task {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lose(self.number);
        }
    }
}
