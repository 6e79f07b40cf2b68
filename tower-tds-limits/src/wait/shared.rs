use std::{
    fmt,
    future::poll_fn,
    mem,
    ops::ControlFlow,
    sync::PoisonError,
    task::{Poll, Waker},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Deadline, Denial, Limit, Line, Opens, Terms, clock,
    queue::{Place, Queue},
    sync::{Mutex, MutexGuard},
};

/// Limit, and the queue in front of it, under one lock.
pub(crate) struct Shared<L> {
    /// Guards the limit, its queue and the state of its timer, so that a grant and its order are one
    /// step. It is held for arithmetic only: no `.await`, no event and no waker runs under it.
    pub(super) state: Mutex<State<L>>,
}

pub(super) struct State<L> {
    pub(super) limit: L,
    pub(super) queue: Queue,
    pub(super) timer: TimerState,
    /// Wakers to wake when nothing is in flight.
    awaits_idle: Vec<Waker>,
}

/// State of the timer's task.
#[derive(Debug, Default)]
pub(super) struct TimerState {
    /// Number of the current task. An older task ends at its next poll.
    number: u64,
    is_running: bool,
    /// When the task is to wake the next waiter.
    due: Option<Instant>,
    waker: Option<Waker>,
}

/// Work to do after the lock is released.
#[must_use = "wakers are to be woken after the lock is released"]
#[derive(Debug, Default)]
struct After {
    wake: Vec<Waker>,
    /// Waker to drop outside the lock.
    replaced: Option<Waker>,
    warns: bool,
}

// === impl Shared ===

impl<L: Limit> Shared<L> {
    pub(crate) fn new(limit: L) -> Self {
        let state = State {
            limit,
            queue: Queue::default(),
            timer: TimerState::default(),
            awaits_idle: Vec::new(),
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Reads the limit, with the number of its waiters.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&mut L, usize) -> T) -> T {
        let state = &mut *self.lock();
        read(&mut state.limit, state.queue.waiting())
    }

    /// Changes the limit, and wakes the next waiter if that opens it.
    #[inline]
    pub(crate) fn update<T>(&self, event: impl FnOnce(&mut L) -> T) -> T {
        let mut state = self.lock();
        let out = event(&mut state.limit);
        // Usually there is no waiter, so the time does not matter.
        if state.queue.is_free() && state.awaits_idle.is_empty() {
            return out;
        }
        let now = clock::now();
        self.end_event(state, now, None);
        out
    }

    /// Does the same as [`update`](Self::update) with the current time. The clock is read under the
    /// lock, so that events reach the limit in order of time.
    #[inline]
    pub(crate) fn update_now<T>(&self, event: impl FnOnce(&mut L, Instant) -> T) -> T {
        self.update(|limit| event(limit, clock::now()))
    }

    /// Waits until nothing is in flight.
    pub(crate) async fn idle(&self) {
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.limit.is_idle() {
                return Poll::Ready(());
            }
            if !state
                .awaits_idle
                .iter()
                .any(|waker| waker.will_wake(cx.waker()))
            {
                state.awaits_idle.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Makes a new timer task the current one. Returns its number.
    pub(super) fn begin_timer(&self) -> u64 {
        let timer = &mut self.lock().timer;
        timer.number += 1;
        timer.is_running = true;
        timer.number
    }

    /// Handles a poll of the timer's task. Returns the time at which the task is due next, if that
    /// is known, or that the task ends.
    pub(super) fn poll_timer(
        &self,
        number: u64,
        waker: &Waker,
    ) -> ControlFlow<(), Option<Instant>> {
        let mut state = self.lock();
        if state.timer.number != number {
            return ControlFlow::Break(());
        }
        // Takes the waker first, so that the task does not wake itself.
        let replaced = state.timer.waker.take();
        state.timer.due = None;
        if state.queue.waiting() == 0 {
            return ControlFlow::Break(());
        }
        let mut after = state.wake_next(clock::now());
        after.replaced = replaced;
        let due = state.timer.due;
        state.timer.waker = Some(waker.clone());
        drop(state);
        self.run(after);
        ControlFlow::Continue(due)
    }

    /// Records the drop of the timer's task: at its end, or with its runtime. Wakes the waiters
    /// that are left, and one of them starts another task.
    pub(super) fn end_timer(&self, number: u64) {
        let mut state = self.lock();
        if state.timer.number != number {
            return;
        }
        let ended = mem::take(&mut state.timer);
        state.timer.number = number;
        let wakers = state.queue.wakers();
        drop(state);
        drop(ended);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends an event: wakes the next waiter or sets the timer, and releases the lock.
    #[inline]
    pub(super) fn end_event(
        &self,
        mut state: MutexGuard<'_, State<L>>,
        now: Instant,
        replaced: Option<Waker>,
    ) {
        let mut after = state.wake_next(now);
        after.replaced = replaced;
        drop(state);
        self.run(after);
    }

    fn run(&self, after: After) {
        after.wake.into_iter().for_each(Waker::wake);
        if after.warns {
            crate::events::bodies_are_held();
        }
    }
}

impl<L> Shared<L> {
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, State<L>> {
        // Poisoning is ignored: only a limit can panic under this lock, and its state is plain
        // numbers.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L> Drop for Shared<L> {
    fn drop(&mut self) {
        // The timer's task holds no reference to this, and ends at its next poll.
        let waker = self.lock().timer.waker.take();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<L> fmt::Debug for Shared<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

// === impl State ===

impl<L: Limit> State<L> {
    /// Takes a place in the queue.
    pub(super) fn enter(&mut self, line: Line, most_waiting: usize) -> Result<Place, Denial> {
        if self.queue.waiting() >= most_waiting {
            return Err(Denial::Full);
        }
        Ok(self.queue.enter(line))
    }

    /// Whether a newcomer on these terms can be answered in time, as far as that is known.
    ///
    /// # Errors
    /// If the newcomer cannot be answered in time.
    #[cold]
    pub(super) fn foresee(
        &mut self,
        line: Line,
        terms: &Terms,
        now: Instant,
    ) -> Result<(), Denial> {
        let Some(deadline) = terms.deadline else {
            return Ok(());
        };
        let ahead = self.queue.ahead(line);
        match self.limit.outlook(line, ahead, now) {
            Some(outlook) if !deadline.allows(outlook.wait, outlook.usual, now) => {
                Err(Denial::Overload(outlook))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a waiter at its turn has too little time, and another one could use its permit.
    pub(super) fn is_late(&mut self, place: Place, terms: &Terms, now: Instant) -> bool {
        let Some(deadline) = terms.deadline else {
            return false;
        };
        // As long as nothing is known, calls that have most of their time left go first. Otherwise a
        // queue of calls close to their deadlines would use up every permit, no response would come
        // in time, and the usual time would stay unknown.
        let usual = self.limit.usual(now).unwrap_or(Duration::MAX);
        let can_use = |deadline: Deadline| deadline.allows(Duration::ZERO, usual, now);
        !can_use(deadline) && self.queue.is_wanted(place, can_use)
    }

    /// Gives the next waiter its turn, or sets the timer.
    fn wake_next(&mut self, now: Instant) -> After {
        let mut after = After::default();
        if self.limit.is_idle() {
            after.wake.append(&mut self.awaits_idle);
        }
        let Self { limit, queue, .. } = self;
        let is_open = |line| limit.opens(line, now) == Opens::Now;
        let mut due = queue.give_turn(now, is_open, &mut after.wake);
        if due.is_none()
            && let Some(line) = queue.next_line()
        {
            let opens_at = limit.opens(line, now).at();
            due = opens_at.into_iter().chain(limit.changes_at()).min();
            after.warns = limit.take_warning(now);
        }
        if let Some(due) = due {
            after.wake.extend(self.timer.set(due));
        }
        after
    }
}

// === impl TimerState ===

impl TimerState {
    /// Sets the time of the task to `due` if that is earlier, and returns the task's waker in that
    /// case.
    fn set(&mut self, due: Instant) -> Option<Waker> {
        if self.due.is_some_and(|before| before <= due) {
            return None;
        }
        self.due = Some(due);
        self.waker.take()
    }

    /// Whether there is no task, or one whose runtime does not run it.
    pub(super) fn is_wanted(&self, now: Instant) -> bool {
        let is_late = |due: Instant| now.saturating_duration_since(due) > LATE;
        !self.is_running || self.due.is_some_and(is_late)
    }
}

/// A task that is late by this much counts as one whose runtime does not run it. Timers on a busy
/// machine are late by much less.
const LATE: Duration = Duration::from_millis(50);
