use std::{
    fmt, mem,
    ops::ControlFlow,
    sync::PoisonError,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::{
    Bounds, Deadline, Denial, Limit, Line, Opens, WaitCause, clock,
    queue::{Place, Queue},
    sync::{Arc, Mutex, MutexGuard},
    timer::{self, Timed},
};

/// Limit, and the queue in front of it, under one lock.
pub(crate) struct Shared<L> {
    /// Guards the limit, its queue and the state of its timer, so that a grant and its order are one
    /// step. It is held for arithmetic only: no `.await`, no event and no waker runs under it.
    pub(super) state: Mutex<State<L>>,
    /// Notified when the timer's time has moved, and at the end of this.
    moved: Arc<Notify>,
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
}

/// What to wake after the lock is released.
struct Wake {
    waiters: Vec<Waker>,
    /// Whether the timer's time has moved.
    timer: bool,
}

/// One waiter of a limit. Dropping it gives up its place.
#[derive(Debug)]
pub(crate) struct Waiter<L: Limit> {
    shared: Arc<Shared<L>>,
    line: Line,
    place: Option<Place>,
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
            moved: Arc::new(Notify::new()),
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

    /// Does the same as [`update`](Self::update) with the current time. The clock is read before the
    /// lock, which is then held for half as long.
    #[inline]
    pub(crate) fn update_now<T>(&self, event: impl FnOnce(&mut L, Instant) -> T) -> T {
        let now = clock::now();
        self.update(|limit| event(limit, now))
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
        wake.waiters.into_iter().for_each(Waker::wake);
        if wake.timer {
            self.moved.notify_one();
        }
    }
}

impl<L: Limit> Timed for Shared<L> {
    fn begin_timer(&self) -> Option<Arc<Notify>> {
        let is_running = mem::replace(&mut self.lock().timer.is_running, true);
        (!is_running).then(|| Arc::clone(&self.moved))
    }

    fn tick(&self) -> ControlFlow<(), Option<Instant>> {
        let mut state = self.lock();
        state.timer.due = None;
        if state.queue.waiting() == 0 {
            return ControlFlow::Break(());
        }
        let wake = state.wake_next(clock::now(), true);
        let due = state.timer.due;
        drop(state);
        wake.waiters.into_iter().for_each(Waker::wake);
        ControlFlow::Continue(due)
    }

    /// Wakes the waiters that are left, and one of them starts another task.
    fn end_timer(&self) {
        let mut state = self.lock();
        state.timer = TimerState::default();
        let wakers = state.queue.wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
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
        self.moved.notify_one();
    }
}

impl<L> fmt::Debug for Shared<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

// === impl Waiter ===

impl<L: Limit> Waiter<L> {
    #[inline]
    pub(crate) fn new(shared: &Arc<Shared<L>>, line: Line) -> Self {
        Self {
            shared: Arc::clone(shared),
            line,
            place: None,
        }
    }

    /// Keeps the place, and lets later waiters pass until this one is polled again.
    ///
    /// # Errors
    /// If this waiter has no place yet, and as many others wait as its bounds allow.
    pub(crate) fn skip(&mut self, bounds: &Bounds) -> Result<(), Denial> {
        let mut state = self.shared.lock();
        let now = clock::now();
        if let Some(place) = self.place {
            let replaced = state.queue.skip(place);
            self.shared.end_event(state, now, replaced);
        } else {
            let place = state.place(self.line, bounds, now);
            state.enter(bounds.most_waiting)?;
            self.place = Some(place);
        }
        Ok(())
    }

    /// Returns the cause of the wait, and the time until the limit opens.
    pub(crate) fn wait(&self, now: Instant) -> (WaitCause, Option<Duration>) {
        let limit = &mut self.shared.lock().limit;
        let opens_at = limit.opens(self.line, now).at();
        let left = opens_at.map(|at| at.saturating_duration_since(now));
        (limit.cause(self.line, now), left)
    }
}

impl<L: Limit + Send + 'static> Waiter<L> {
    /// Passes if the limit is open and no other waiter is before this one; the limit then counts
    /// one more. Otherwise takes or keeps its place, and wants a turn.
    ///
    /// # Errors
    /// See [`Denial`]. After an error the waiter has no place.
    #[inline]
    pub(crate) fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        bounds: &Bounds,
    ) -> Poll<Result<L::Granted, Denial>> {
        let (shared, line) = (&self.shared, self.line);
        let mut state = shared.lock();
        let is_alone = self.place.is_none() && state.queue.is_free();
        if is_alone && state.limit.opens(line, now) == Opens::Now {
            return Poll::Ready(Ok(state.limit.admit(line, bounds, now)));
        }
        let place = self.place.unwrap_or_else(|| state.place(line, bounds, now));
        let is_next = !is_alone && state.queue.is_next(place);
        if is_next && state.limit.opens(line, now) == Opens::Now {
            let passed = if state.is_late(place, bounds, now) {
                Err(Denial::Late)
            } else {
                Ok(state.limit.admit(line, bounds, now))
            };
            let place = self.place.take();
            let replaced = place.and_then(|place| state.queue.pass(place));
            shared.end_event(state, now, replaced);
            return Poll::Ready(passed);
        }
        if self.place.is_none() {
            state.enter(bounds.most_waiting)?;
            self.place = Some(place);
        }
        let replaced = state.queue.want(place, cx.waker().clone());
        let wants_timer = !state.timer.is_running;
        shared.end_event(state, now, replaced);
        if wants_timer {
            timer::spawn(shared);
        }
        Poll::Pending
    }
}

impl<L: Limit> Drop for Waiter<L> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let mut state = self.shared.lock();
            let replaced = state.queue.leave(place);
            self.shared.end_event(state, clock::now(), replaced);
        }
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

    /// Gives the next waiter its turn, or sets the timer.
    fn wake_next(&mut self, now: Instant, is_timer: bool) -> Wake {
        let mut waiters = Vec::new();
        let Self { limit, queue, .. } = self;
        let is_open = |line| limit.opens(line, now) == Opens::Now;
        let mut due = queue.give_turn(now, is_timer, is_open, &mut waiters);
        if due.is_none()
            && let Some(line) = queue.next_line()
        {
            due = limit.opens(line, now).at();
        }
        let timer = due.is_some_and(|due| self.timer.set(due));
        Wake { waiters, timer }
    }
}

// === impl TimerState ===

impl TimerState {
    /// Sets the time of the task to `due` if that is earlier. Returns whether it is.
    fn set(&mut self, due: Instant) -> bool {
        let is_earlier = self.due.is_none_or(|before| due < before);
        if is_earlier {
            self.due = Some(due);
        }
        is_earlier
    }
}

/// Time after which a call without a deadline comes before all that arrive.
const MINUTE: Duration = Duration::from_secs(60);
