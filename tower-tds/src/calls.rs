//! The calls of a client: how many are under way, for its end, and what the last failure was, for whoever asks.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tower_tds_errors::{Error, Kind};

/// How many calls are under way, and whether there may be more: [`CLOSED`] is added for that.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    count: AtomicUsize,
    ended: Notify,
    /// Whether there is a failure that no success has followed.
    fails: AtomicBool,
    /// Kept after a success. Held for a few moves, and never while anybody waits.
    failure: Mutex<Option<Failure>>,
}

/// A call that has failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) at: Instant,
    /// When the log last said that calls fail.
    told: Instant,
    /// What the error prints.
    pub(crate) line: String,
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

    /// A call has succeeded.
    #[inline]
    pub(crate) fn succeeded(&self) {
        // Relaxed: of two calls that end at once either may be the last.
        if self.fails.load(Ordering::Relaxed) && self.fails.swap(false, Ordering::Relaxed) {
            self.again();
        }
    }

    /// A call has failed. What is its caller's own fault says nothing about the others.
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
        // Where some fail and some do not, one line a minute is enough.
        let quiet = |failure: &Failure| failure.told.elapsed() < QUIET;
        if !self.failure().as_ref().is_some_and(quiet) {
            tracing::info!("calls succeed again");
        }
    }

    /// The last call that failed, while that is news: until ten minutes after it.
    pub(crate) fn last_failure(&self) -> Option<Failure> {
        let failure = self.failure().clone();
        failure.filter(|failure| failure.at.elapsed() < NEWS)
    }

    pub(crate) fn are_closed(&self) -> bool {
        self.count.load(Ordering::Relaxed) & CLOSED != 0
    }

    fn failure(&self) -> MutexGuard<'_, Option<Failure>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No more calls begin.
    pub(crate) fn close(&self) {
        self.count.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// How many are under way.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) & !CLOSED
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

impl UnderWay {
    /// Notes what became of it.
    #[inline]
    pub(crate) fn ended<T>(&self, ended: &Result<T, Error>) {
        match ended {
            Ok(_) => self.0.succeeded(),
            Err(error) => self.0.failed(error),
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // Nobody waits for the end before it is closed.
        if self.0.count.fetch_sub(1, Ordering::SeqCst) > CLOSED {
            self.0.ended.notify_waiters();
        }
    }
}

/// As long as the limits remember a refusal.
const NEWS: Duration = Duration::from_secs(600);

/// For so long after a line about failures there is no other.
const QUIET: Duration = Duration::from_secs(60);

/// A bit that no count of calls reaches.
const CLOSED: usize = 1 << (usize::BITS - 1);
