use std::{fmt, mem, ops::ControlFlow, sync::PoisonError, task::Waker, time::Duration};

use tokio::{sync::Notify, time::Instant};

use super::{
    CallDeadline, Limit, Priority, Queue, Rank, clock,
    sync::{Arc, Mutex, MutexGuard},
};

/// Limit, and the queue in front of it, under one lock.
pub(crate) struct Shared<L> {
    /// Guards the limit and its queue, so that a grant and its order are one step. It is held for
    /// arithmetic only: no `.await`, no event and no waker runs under it.
    pub(super) state: Mutex<State<L>>,
    /// Notifies the timer's task of events while there are waiters, and of the end of this.
    pub(super) events: Arc<Notify>,
}

pub(super) struct State<L> {
    pub(super) limit: L,
    pub(super) queue: Queue,
    /// Whether the timer's task runs.
    pub(super) has_timer: bool,
}

// === impl Shared ===

impl<L: Limit> Shared<L> {
    pub(crate) fn new(limit: L) -> Self {
        let state = State {
            limit,
            queue: Queue::default(),
            has_timer: false,
        };
        Self {
            state: Mutex::new(state),
            events: Arc::new(Notify::new()),
        }
    }

    /// Reads the limit, with the number of its waiters.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&mut L, usize) -> T) -> T {
        let state = &mut *self.lock();
        read(&mut state.limit, state.queue.waiting())
    }

    /// Changes the limit, and wakes the next waiter if that opens it. An event that needs the time reads the clock before
    /// it takes the lock, which is then held for half as long.
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

    /// Ends an event: releases the lock, then wakes the next waiter, and the timer's task while there are
    /// waiters, because it may be due earlier. A waker that was replaced is dropped after that.
    #[inline]
    pub(super) fn end_event(
        &self,
        mut state: MutexGuard<'_, State<L>>,
        now: Instant,
        replaced: Option<Waker>,
    ) {
        let (woken, _) = state.give_turn(now, false);
        let is_free = state.queue.is_free();
        drop(state);
        drop(replaced);
        woken.into_iter().for_each(Waker::wake);
        if !is_free {
            self.events.notify_one();
        }
    }

    /// Records the start of the timer's task. Returns whether there was none.
    pub(super) fn begin_timer(&self) -> bool {
        !mem::replace(&mut self.lock().has_timer, true)
    }

    /// Wakes the next waiter from the timer's task. Returns when the task is due next, if that is known,
    /// or that it ends.
    pub(super) fn tick(&self) -> ControlFlow<(), Option<Instant>> {
        let mut state = self.lock();
        if state.queue.waiting() == 0 {
            return ControlFlow::Break(());
        }
        let (woken, due) = state.give_turn(clock::now(), true);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        ControlFlow::Continue(due)
    }

    /// Records the end of the timer's task, and wakes the waiters that are left, of which one starts
    /// another task.
    pub(super) fn end_timer(&self) {
        let mut state = self.lock();
        state.has_timer = false;
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
        self.events.notify_one();
    }
}

impl<L> fmt::Debug for Shared<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

// === impl State ===

impl<L: Limit> State<L> {
    /// Ranks a call that arrives now. The one that must start first is first; one without a deadline is
    /// ordered as if it had a minute, so that nothing starves.
    pub(super) fn enter(
        &mut self,
        priority: Priority,
        deadline: Option<&CallDeadline>,
        now: Instant,
    ) -> Rank {
        let minute = now + MINUTE;
        let start = deadline.map_or(minute, |deadline| {
            let usual = self.limit.usual(deadline);
            deadline.at.checked_sub(usual).unwrap_or(now).min(minute)
        });
        self.queue.enter(priority, start)
    }

    /// Whether a call at its turn has too little time to be answered. One that comes while no other waits
    /// is sent nevertheless, because only an answer shows that the service is quick again.
    pub(super) fn is_late(&self, deadline: Option<&CallDeadline>, now: Instant) -> bool {
        deadline.is_some_and(|deadline| {
            let left = deadline.at.saturating_duration_since(now);
            left < self.limit.usual(deadline)
        })
    }

    /// Gives the next waiter its turn. Returns whom to wake, and when to do so again, if that is known.
    fn give_turn(&mut self, now: Instant, is_timer: bool) -> (Vec<Waker>, Option<Instant>) {
        let Self { limit, queue, .. } = self;
        let mut woken = Vec::new();
        let opens = |priority| limit.opens(priority, now).0;
        let due = queue.give_turn(now, is_timer, opens, &mut woken);
        (woken, due)
    }
}

/// Time after which a call without a deadline comes before all that arrive.
const MINUTE: Duration = Duration::from_secs(60);
