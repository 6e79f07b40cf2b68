//! The task that keeps a queue's time: it looks when the limit opens, whoever else does not.
//!
//! A waiter with a timer of its own would be woken by it alone, and if nobody polls that one, no
//! other hears that time has come. There is one alarm for each runtime in which somebody has
//! waited, so that one whose runtime stands still stops nobody in another. It ends with its runtime,
//! or with the queue.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    runtime::{Handle, Id},
    time::{Sleep, sleep, sleep_until},
};

use super::{Limit, Queue};

pub(super) struct Alarm<L: Limit> {
    queue: Weak<Queue<L>>,
    runtime: Id,
    sleep: Option<Pin<Box<Sleep>>>,
}

// === impl Alarm ===

impl<L: Limit + Send + 'static> Alarm<L> {
    /// Sees to it that there is one in this runtime.
    ///
    /// # Panics
    /// Outside a runtime with timers, as those do: who waits there might wait for ever.
    pub(super) fn ensure(queue: &Arc<Queue<L>>) {
        let runtime = Handle::current();
        if queue.hang_bell(runtime.id()) {
            let mut alarm = Self {
                queue: Arc::downgrade(queue),
                runtime: runtime.id(),
                sleep: None,
            };
            // If there are none it is said to who waits, and not in a task, again and again.
            alarm.sleep = Some(Box::pin(sleep(Duration::ZERO)));
            drop(runtime.spawn(alarm));
        }
    }
}

impl<L: Limit> Future for Alarm<L> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            let Some(queue) = this.queue.upgrade() else {
                return Poll::Ready(());
            };
            let look_at = queue.ring(this.runtime, cx.waker());
            drop(queue);
            let Some(at) = look_at else {
                this.sleep = None;
                return Poll::Pending;
            };
            let sleep = this.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
            if sleep.deadline() != at {
                sleep.as_mut().reset(at);
            }
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            this.sleep = None;
        }
    }
}

impl<L: Limit> Drop for Alarm<L> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.upgrade() {
            queue.take_bell(self.runtime);
        }
    }
}
