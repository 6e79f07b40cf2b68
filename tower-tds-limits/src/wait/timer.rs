use std::{
    ops::ControlFlow,
    sync::{Arc, Weak},
};

use tokio::{
    runtime::Handle,
    time::{sleep_until, timeout_at},
};

use super::{Limit, clock, shared::Shared};

/// Kept for its drop, which records the end of the task: by itself, or with its runtime.
struct Running<L: Limit>(Weak<Shared<L>>);

// === impl Running ===

impl<L: Limit> Drop for Running<L> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.end_timer();
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
pub(super) fn spawn<L: Limit + Send + 'static>(shared: &Arc<Shared<L>>) {
    let runtime = Handle::current();
    // A runtime without timers panics here, in the call that waits.
    drop(sleep_until(clock::now()));
    if shared.begin_timer() {
        drop(runtime.spawn(run(Running(Arc::downgrade(shared)))));
    }
}

async fn run<L: Limit>(running: Running<L>) {
    while let Some(shared) = running.0.upgrade() {
        let ControlFlow::Continue(due) = shared.tick() else {
            return;
        };
        let events = Arc::clone(&shared.events);
        drop(shared);
        match due {
            Some(due) => drop(timeout_at(due, events.notified()).await),
            None => events.notified().await,
        }
    }
}
