use std::{
    ops::ControlFlow,
    sync::{Arc, Weak},
};

use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};

use super::clock;

/// What has a timer.
pub(super) trait Timed {
    /// Records the start of the timer's task, unless there is one. Returns what moves it.
    fn begin_timer(&self) -> Option<Arc<Notify>>;

    /// Wakes the next waiter from the timer's task. Returns when the task is due next, if that is known,
    /// or that it ends.
    fn tick(&self) -> ControlFlow<(), Option<Instant>>;

    /// Records the drop of the timer's task: at its end, or with its runtime.
    fn end_timer(&self);
}

/// Kept for its drop, which records the end of the task: by itself, or with its runtime.
struct Running<T: Timed>(Weak<T>);

// === impl Running ===

impl<T: Timed> Drop for Running<T> {
    fn drop(&mut self) {
        if let Some(timed) = self.0.upgrade() {
            timed.end_timer();
        }
    }
}

/// Spawns the task that wakes the next waiter when a limit opens by time alone, on the current runtime.
///
/// There is one for each limit, whose sleep is moved. Waiters have no timers of their own, because a
/// timer wakes only its own task: if that is not polled, the others would keep waiting. When there is
/// no waiter, the task ends.
///
/// # Panics
/// Outside a tokio runtime with timers.
#[cold]
pub(super) fn spawn<T: Timed + Send + Sync + 'static>(timed: &Arc<T>) {
    let runtime = Handle::current();
    // A runtime without timers panics here, in the call that waits.
    drop(sleep_until(clock::now()));
    if let Some(moved) = timed.begin_timer() {
        drop(runtime.spawn(run(Running(Arc::downgrade(timed)), moved)));
    }
}

async fn run<T: Timed>(running: Running<T>, moved: Arc<Notify>) {
    while let Some(timed) = running.0.upgrade() {
        let ControlFlow::Continue(due) = timed.tick() else {
            return;
        };
        drop(timed);
        match due {
            Some(due) => drop(timeout_at(due, moved.notified()).await),
            None => moved.notified().await,
        }
    }
}
