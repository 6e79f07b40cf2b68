//! The owner of the state: publishes the token that calls read, waits for one, and runs the flights.
//!
//! Callers and the task apply events to the state, which makes all decisions. Each step publishes its result: the token
//! in the slot, and whether a flight has begun or ended. With a settled token, a call reads the slot and the wall
//! clock, and takes no lock. Every other call waits for the end of its flight.

use std::{
    fmt, mem,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use futures_util::FutureExt as _;
use tokio::{
    runtime::Handle,
    sync::{Notify, futures::Notified},
    task::JoinHandle,
    time::{Instant, timeout_at},
};

use crate::{
    clock::{Clock, Timestamp},
    error::{ErrorKind, Refresh, TokenError},
    request::Grant,
    state::{Bearer, Need, State},
};

pub(crate) struct Owner {
    slot: ArcSwapOption<Bearer>,
    /// Number of the token in the slot while calls may send it without a look at the state; zero while they may not.
    /// Calls may see the new slot before the new number, or after it: one that sees an old value acts like a call a
    /// moment earlier.
    settled: AtomicU64,
    /// Locked for arithmetic, never across an `.await`.
    locked: Mutex<Locked>,
    /// Notified when a flight begins or ends, or the last handle is gone.
    changed: Arc<Notify>,
    pub(crate) grant: Arc<Grant>,
    clock: Clock,
}

struct Locked {
    state: State,
    task: Option<JoinHandle<()>>,
}

// === impl Owner ===

impl Owner {
    pub(crate) fn new(state: State, grant: Grant, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            slot: ArcSwapOption::const_empty(),
            settled: AtomicU64::new(0),
            locked: Mutex::new(Locked { state, task: None }),
            changed: Arc::default(),
            grant: Arc::new(grant),
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

    /// Records that a call with the token of this number was accepted.
    #[inline]
    pub(crate) fn accept(&self, generation: u64) {
        if self.settled.load(Ordering::Relaxed) != generation {
            self.with(|state, now| state.accepted(generation, now));
        }
    }

    /// Returns the number of the flight that has not ended.
    pub(crate) fn in_flight(&self) -> Option<u64> {
        self.lock().state.in_flight()
    }

    /// Waits for a token that may be sent.
    pub(crate) async fn wait(self: Arc<Self>) -> Result<Arc<Bearer>, TokenError> {
        loop {
            let (need, flight) = self.with(|state, now| {
                let need = state.need(now)?;
                // The task that would begin the renewal may have ended with its runtime.
                state.tick(now);
                Ok::<_, TokenError>((need, state.in_flight()))
            })?;
            self.drive();
            match need {
                Need::Send(bearer) => return Ok(bearer),
                // After a flight the state is read again: the caller may be polled long after its end.
                Need::Wait(until) => self.ended(flight, LOOK_EVERY, until).await,
            }
        }
    }

    /// Records that a call was refused, and returns the flight that replaces its token, if there is one.
    pub(crate) fn report(
        self: &Arc<Self>,
        refused: impl FnOnce(&mut State, Timestamp) -> Result<(), Refresh>,
    ) -> Result<Option<u64>, Refresh> {
        let flight = self.with(|it, now| refused(it, now).map(|()| it.in_flight()))?;
        self.drive();
        Ok(flight)
    }

    /// Waits until this flight has ended, for so long at most, and until the instant at most.
    pub(crate) async fn ended(&self, flight: Option<u64>, most: Duration, until: Option<Instant>) {
        let latest = self.clock.now().steady + most;
        let until = until.map_or(latest, |it| it.min(latest));
        loop {
            // Created before the state is read, so that no end is missed between the two.
            let changed = self.changed.notified();
            if self.in_flight() != flight || timeout_at(until, changed).await.is_err() {
                return;
            }
        }
    }

    /// Starts a task for the flights on the current runtime, unless one runs. It repeats the flight of one whose runtime
    /// has ended.
    pub(crate) fn drive(self: &Arc<Self>) {
        let mut locked = self.lock();
        if locked.task.as_ref().is_none_or(JoinHandle::is_finished) {
            let task = run(Arc::downgrade(self), Arc::clone(&self.changed));
            locked.task = Handle::try_current().ok().map(|it| it.spawn(task));
        }
    }

    /// Runs `work` under the lock, and publishes what follows. Emits the log lines after the lock,
    /// because a subscriber may call the source.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let (mut locked, now) = (self.lock(), self.clock.now());
        let state = &mut locked.state;
        let before = state.in_flight();
        let done = work(state, now);
        self.slot.store(state.in_use_at(now).cloned());
        let settled = state.settled_at(now).unwrap_or(0);
        self.settled.store(settled, Ordering::Relaxed);
        let notices = mem::take(&mut state.notices);
        let has_changed = state.in_flight() != before;
        drop(locked);
        if has_changed {
            self.changed.notify_waiters();
        }
        notices.into_iter().for_each(|notice| notice());
        done
    }

    /// Runs the flight in progress, or begins the renewal, or sleeps until one of them is due.
    async fn step(this: &Weak<Self>, changed: Notified<'_>) -> Option<()> {
        let shared = this.upgrade()?;
        let (wait, flight) = shared.with(|state, now| {
            let wait = state.tick(now);
            let until = wait.and_then(|wait| now.steady.checked_add(wait));
            let flight = state
                .in_flight()
                .map(|_| (state.newest(), state.refused_at(now)));
            (until, flight)
        });
        let grant = Arc::clone(&shared.grant);
        // Between its steps, only the handles keep the source alive.
        drop(shared);
        let Some((newest, refused)) = flight else {
            match wait {
                Some(until) => drop(timeout_at(until, changed).await),
                None => changed.await,
            }
            return Some(());
        };
        let flown = AssertUnwindSafe(grant.fly(newest.as_deref(), refused));
        let flown = flown.catch_unwind().await;
        let panicked = || TokenError::new(ErrorKind::Transport).because(PANICKED);
        let flown = flown.unwrap_or_else(|_| Err(panicked()));
        this.upgrade()?.with(|state, now| match flown {
            Ok(Some(issued)) => state.fetched(issued, now),
            Ok(None) => drop(state.land()),
            Err(error) => state.failed(&error, now),
        });
        Some(())
    }

    /// Locks the state. Poison is ignored, because a panic under the lock leaves the state consistent.
    fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the task, which then ends.
impl Drop for Owner {
    fn drop(&mut self) {
        self.changed.notify_waiters();
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner")
    }
}

/// Runs one flight after another, and sleeps between them. It ends with the last handle, after the flight in progress.
async fn run(shared: Weak<Owner>, changed: Arc<Notify>) {
    // Created before the state is read, so that no flight is missed between the two.
    while Owner::step(&shared, changed.notified()).await.is_some() {}
}

/// Time after which a waiting caller looks whether the runtime of the flight has ended.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);
const PANICKED: &str =
    "the HTTP client, the token store or the provider panicked: read what the panic hook printed";
