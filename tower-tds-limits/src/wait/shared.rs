use std::{fmt, mem, ops::ControlFlow, sync::PoisonError, task::Waker, time::Duration};

use tokio::time::Instant;

use super::{
    Bounds, Deadline, Denial, Limit, Line, Opens, clock,
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
}

/// State of the timer's task.
#[derive(Debug, Default)]
pub(super) struct TimerState {
    pub(super) is_running: bool,
    /// When the task is to wake the next waiter.
    due: Option<Instant>,
    waker: Option<Waker>,
}

// === impl Shared ===

impl<L: Limit> Shared<L> {
    pub(crate) fn new(limit: L) -> Self {
        let state = State {
            limit,
            queue: Queue::default(),
            timer: TimerState::default(),
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
        if state.queue.is_free() {
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

    /// Records the start of the timer's task. Returns whether there is none yet.
    pub(super) fn begin_timer(&self) -> bool {
        !mem::replace(&mut self.lock().timer.is_running, true)
    }

    /// Handles a poll of the timer's task. Returns the time at which the task is due next, if that
    /// is known, or that the task ends.
    pub(super) fn poll_timer(&self, waker: &Waker) -> ControlFlow<(), Option<Instant>> {
        let mut state = self.lock();
        // Takes the waker first, so that the task does not wake itself.
        let replaced = state.timer.waker.take();
        state.timer.due = None;
        if state.queue.waiting() == 0 {
            return ControlFlow::Break(());
        }
        let wake = state.wake_next(clock::now(), true);
        let due = state.timer.due;
        state.timer.waker = Some(waker.clone());
        drop(state);
        drop(replaced);
        wake.into_iter().for_each(Waker::wake);
        ControlFlow::Continue(due)
    }

    /// Records the drop of the timer's task: at its end, or with its runtime. Wakes the waiters
    /// that are left, and one of them starts another task.
    pub(super) fn end_timer(&self) {
        let mut state = self.lock();
        let ended = mem::take(&mut state.timer);
        let wakers = state.queue.wakers();
        drop(state);
        drop(ended);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends an event: wakes the next waiter or sets the timer, and releases the lock. A waker that was
    /// replaced is dropped after that.
    #[inline]
    pub(super) fn end_event(
        &self,
        mut state: MutexGuard<'_, State<L>>,
        now: Instant,
        replaced: Option<Waker>,
    ) {
        let wake = state.wake_next(now, false);
        drop(state);
        drop(replaced);
        wake.into_iter().for_each(Waker::wake);
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
    /// Returns the place of a call that arrives now. The call that must start first is first; one
    /// without a deadline is ordered as if it had a minute, so that nothing starves.
    pub(super) fn place(&self, line: Line, bounds: &Bounds, now: Instant) -> Place {
        let minute = now + MINUTE;
        let start = bounds.deadline.map_or(minute, |deadline| {
            let usual = self.usual(line, &deadline);
            deadline.at.checked_sub(usual).unwrap_or(now).min(minute)
        });
        self.queue.place(line, start)
    }

    /// Returns the usual time of a call. Token requests are not measured, and are never late.
    fn usual(&self, line: Line, deadline: &Deadline) -> Duration {
        match line {
            Line::Front => Duration::ZERO,
            Line::Back => self.limit.usual(deadline).unwrap_or_default(),
        }
    }

    /// Takes a place in the queue.
    pub(super) fn enter(&mut self, most_waiting: usize) -> Result<(), Denial> {
        if self.queue.waiting() >= most_waiting {
            return Err(Denial::Full);
        }
        self.queue.enter();
        Ok(())
    }

    /// Whether a call at its turn has too little time. If no other waiter could use its permit, it is
    /// sent nevertheless while it has nearly all of its time, because only an answer shows that the
    /// service is quick again. Later it would hardly be answered, and show nothing.
    pub(super) fn is_late(&self, place: Place, bounds: &Bounds, now: Instant) -> bool {
        let Some(deadline) = bounds.deadline else {
            return false;
        };
        let usual = self.usual(place.line, &deadline);
        let left = deadline.at.saturating_duration_since(now);
        left < usual && (left < deadline.whole / 20 * 19 || self.queue.is_wanted(place, now))
    }

    /// Gives the next waiter its turn, or sets the timer. Returns the wakers to wake after the lock is
    /// released.
    fn wake_next(&mut self, now: Instant, is_timer: bool) -> Vec<Waker> {
        let mut wake = Vec::new();
        let Self { limit, queue, .. } = self;
        let is_open = |line| limit.opens(line, now) == Opens::Now;
        let mut due = queue.give_turn(now, is_timer, is_open, &mut wake);
        if due.is_none()
            && let Some(line) = queue.next_line()
        {
            due = limit.opens(line, now).at();
        }
        wake.extend(due.and_then(|due| self.timer.set(due)));
        wake
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
}

/// Time after which a call without a deadline comes before all that arrive.
const MINUTE: Duration = Duration::from_secs(60);
