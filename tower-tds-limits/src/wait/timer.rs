use std::{
    future::Future,
    ops::ControlFlow,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use tokio::{
    runtime::Handle,
    time::{Sleep, sleep_until},
};

use super::{Limit, clock, shared::Shared};

/// Task that wakes the next waiter when a limit opens by time alone.
///
/// There is one for each limit, whose sleep is moved. Waiters have no timers of their own, because a
/// timer wakes only its own task: if that is not polled, the others would keep waiting. When there is
/// no waiter, the task ends.
pub(super) struct Timer<L: Limit> {
    shared: Weak<Shared<L>>,
    sleep: Pin<Box<Sleep>>,
}

// === impl Timer ===

impl<L: Limit + Send + 'static> Timer<L> {
    /// Spawns the task on the current runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    #[cold]
    pub(super) fn spawn(shared: &Arc<Shared<L>>) {
        let runtime = Handle::current();
        // Creates the sleep here, so that a runtime without timers panics in the call that waits.
        let sleep = Box::pin(sleep_until(clock::now()));
        if shared.begin_timer() {
            drop(runtime.spawn(Self {
                shared: Arc::downgrade(shared),
                sleep,
            }));
        }
    }
}

impl<L: Limit> Future for Timer<L> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some(shared) = self.shared.upgrade() else {
                return Poll::Ready(());
            };
            let ControlFlow::Continue(due) = shared.poll_timer(cx.waker()) else {
                return Poll::Ready(());
            };
            let Some(due) = due else {
                return Poll::Pending;
            };
            self.sleep.as_mut().reset(due);
            if self.sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl<L: Limit> Drop for Timer<L> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.end_timer();
        }
    }
}
