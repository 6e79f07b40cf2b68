//! Tracks the calls of a client: their number, for a shutdown, and the last failure, for a status.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
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
    /// Whether the last call failed.
    fails: AtomicBool,
    /// The last failure, kept after a success. The lock is held for a few moves, and no `.await`
    /// happens under it.
    failure: Mutex<Option<Failure>>,
}

/// A failed call.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) at: Instant,
    /// The time of the last log line about failures.
    told: Instant,
    /// The text of the error.
    pub(crate) line: String,
}

/// A call from its start to its response head, its error, or its drop.
#[derive(Debug)]
pub(crate) struct TrackedCall(Arc<CallTracker>);

// === impl CallTracker ===

impl CallTracker {
    /// Begins a call, unless the client is closed.
    pub(crate) fn begin(calls: &Arc<Self>) -> Option<TrackedCall> {
        // SeqCst, with `close` and `ended`: a call is either counted before the close, or sees the
        // close.
        let before = calls.count.fetch_add(1, Ordering::SeqCst);
        // If the client is closed, the drop takes the count back.
        let tracked = TrackedCall(Arc::clone(calls));
        (before < CLOSED).then_some(tracked)
    }

    /// Records a success.
    #[inline]
    pub(crate) fn succeeded(&self) {
        // Relaxed: if two calls end at once, either may be the last.
        if self.fails.load(Ordering::Relaxed) && self.fails.swap(false, Ordering::Relaxed) {
            self.again();
        }
    }

    /// Records a failure. A mistake of the caller is not one.
    #[cold]
    pub(crate) fn failed(&self, error: &Error) {
        let own = [Kind::NotFound, Kind::Rejected, Kind::InvalidRequest];
        if own.contains(&error.kind()) {
            return;
        }
        self.fails.store(true, Ordering::Relaxed);
        let (at, line) = (Instant::now(), error.to_string());
        let told = {
            let mut failure = self.failure();
            let before = failure.as_ref().map(|failure| failure.told);
            let told = before.filter(|told| at.saturating_duration_since(*told) < QUIET);
            let line = line.clone();
            *failure = Some(Failure {
                at,
                told: told.unwrap_or(at),
                line,
            });
            told
        };
        if told.is_none() {
            tracing::warn!(kind = error.kind().as_str(), error = line, "calls fail");
        }
    }

    #[cold]
    fn again(&self) {
        // If only some calls fail, one line a minute is enough.
        let quiet = |failure: &Failure| failure.told.elapsed() < QUIET;
        if !self.failure().as_ref().is_some_and(quiet) {
            tracing::info!("calls succeed again");
        }
    }

    /// The last failure, for ten minutes.
    pub(crate) fn last_failure(&self) -> Option<Failure> {
        let failure = self.failure().clone();
        failure.filter(|failure| failure.at.elapsed() < NEWS)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.count.load(Ordering::Relaxed) & CLOSED != 0
    }

    fn failure(&self) -> MutexGuard<'_, Option<Failure>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
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

// === impl TrackedCall ===

impl TrackedCall {
    /// Records the outcome of the call.
    #[inline]
    pub(crate) fn ended<T>(&self, ended: &Result<T, Error>) {
        match ended {
            Ok(_) => self.0.succeeded(),
            Err(error) => self.0.failed(error),
        }
    }
}

impl Drop for TrackedCall {
    fn drop(&mut self) {
        // Only a closed client has a waiter for the end.
        if self.0.count.fetch_sub(1, Ordering::SeqCst) > CLOSED {
            self.0.ended.notify_waiters();
        }
    }
}

/// How long a failure is shown: as long as the limits remember a refusal.
const NEWS: Duration = Duration::from_secs(600);

/// The least time between two log lines about failures.
const QUIET: Duration = Duration::from_secs(60);

/// A bit that no count of calls reaches.
const CLOSED: usize = 1 << (usize::BITS - 1);
