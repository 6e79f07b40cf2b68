//! Tracks the calls of a client: their number, for a shutdown, and the last failure, for a status.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tower_tds_errors::{Error, Kind};

/// The number of calls without a response, and whether new ones may begin: [`CLOSED`] is a bit of
/// it.
#[derive(Debug, Default)]
pub(crate) struct CallTracker {
    count: AtomicUsize,
    ended: Notify,
    /// The time and the text of the last failure, kept after a success. The lock is held only to
    /// copy it, and no `.await` happens under it.
    failure: Mutex<Option<(Instant, String)>>,
}

// === impl CallTracker ===

impl CallTracker {
    /// Counts a call until [`end`](Self::end). Returns whether it may begin: false if the client is
    /// closed.
    pub(crate) fn begin(&self) -> bool {
        // SeqCst, with `close` and `ended`: a call is either counted before the close, or sees the
        // close.
        self.count.fetch_add(1, Ordering::SeqCst) < CLOSED
    }

    /// Removes a call from the count.
    pub(crate) fn end(&self) {
        // Only a closed client has a waiter for the end.
        if self.count.fetch_sub(1, Ordering::SeqCst) > CLOSED {
            self.ended.notify_waiters();
        }
    }

    /// Records a failure. A mistake of the caller is not one.
    #[cold]
    pub(crate) fn failed(&self, error: &Error) {
        let own = [Kind::NotFound, Kind::Rejected, Kind::InvalidRequest];
        if !own.contains(&error.kind()) {
            let failure = (Instant::now(), error.to_string());
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        }
    }

    /// The age and the text of the last failure, for ten minutes.
    pub(crate) fn last_failure(&self) -> Option<(Duration, String)> {
        let failure = self.failure.lock();
        let failure = failure.unwrap_or_else(PoisonError::into_inner).clone();
        let failure = failure.map(|(at, line)| (at.elapsed(), line));
        failure.filter(|(ago, _)| *ago < SHOWN_FOR)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.count.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Closes the client: no new call begins.
    pub(crate) fn close(&self) {
        self.count.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// The number of calls without a response.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) & !CLOSED
    }

    /// Waits until all calls have ended.
    pub(crate) async fn ended(&self) {
        loop {
            // Created before the count is read, so that no notification is missed.
            let ended = self.ended.notified();
            if self.count.load(Ordering::SeqCst) & !CLOSED == 0 {
                return;
            }
            ended.await;
        }
    }
}

/// How long a failure is shown: as long as the limits remember a refusal.
const SHOWN_FOR: Duration = Duration::from_secs(600);

/// A bit that no count of calls reaches.
const CLOSED: usize = 1 << (usize::BITS - 1);
