use std::{
    ops::ControlFlow,
    sync::{Arc, Weak},
};

use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{sleep_until, timeout_at},
};

use super::{Limit, clock, shared::Shared};

/// Limit whose timer runs. Kept for its drop, which records the end of the task or of its runtime.
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
    if let Some(moved) = shared.begin_timer() {
        drop(runtime.spawn(run(Running(Arc::downgrade(shared)), moved)));
    }
}

async fn run<L: Limit>(limit: Running<L>, moved: Arc<Notify>) {
    while let Some(shared) = limit.0.upgrade() {
        let ControlFlow::Continue(due) = shared.tick() else {
            return;
        };
        drop(shared);
        match due {
            Some(due) => drop(timeout_at(due, moved.notified()).await),
            None => moved.notified().await,
        }
    }
}
