//! The calls of a client that are under way, for its end.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// How many calls are under way, and whether there may be more: [`CLOSED`] is added for that.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    count: AtomicUsize,
    ended: Notify,
}

/// A call from its begin to its head, its error, or its drop.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Calls>);

// === impl Calls ===

impl Calls {
    /// One more call, unless there are to be none.
    pub(crate) fn begin(calls: &Arc<Self>) -> Option<UnderWay> {
        // SeqCst: a call is either counted here before it is closed, or finds it closed.
        let before = calls.count.fetch_add(1, Ordering::SeqCst);
        // Dropped where it is closed, which takes it back.
        let under_way = UnderWay(Arc::clone(calls));
        (before < CLOSED).then_some(under_way)
    }

    /// No more calls begin.
    pub(crate) fn close(&self) {
        self.count.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// Waits until none is under way.
    pub(crate) async fn ended(&self) {
        loop {
            // Notified from here on, before anybody looks.
            let ended = self.ended.notified();
            if self.count.load(Ordering::SeqCst) & !CLOSED == 0 {
                return;
            }
            ended.await;
        }
    }
}

// === impl UnderWay ===

impl Drop for UnderWay {
    fn drop(&mut self) {
        // Nobody waits for the end before it is closed.
        if self.0.count.fetch_sub(1, Ordering::SeqCst) > CLOSED {
            self.0.ended.notify_waiters();
        }
    }
}

/// A bit that no count of calls reaches.
const CLOSED: usize = 1 << (usize::BITS - 1);
