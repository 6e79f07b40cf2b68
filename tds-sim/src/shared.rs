//! The state that every clone of the simulator shares, and the clocks it reads.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::Instant;

use crate::{
    config::Config,
    fault::Script,
    ledger::Ledger,
    limits::{Gate, Usage},
    realm::{ApiKey, Realm},
};

/// The state of a simulator. Each lock is held for a few statements. Only under the lock of `gate`
/// is another one taken, that of the ledger.
pub(crate) struct Shared {
    pub(crate) clock: Arc<Clock>,
    pub(crate) config: Config,
    pub(crate) ledger: Ledger,
    pub(crate) gate: Mutex<Gate>,
    pub(crate) usage: Mutex<Usage>,
    pub(crate) realm: Mutex<Realm>,
    pub(crate) script: Mutex<Script>,
    /// The first key, which the program prints.
    pub(crate) api_key: ApiKey,
}

/// Time since the simulator's start, and the wall clock a token's claims need.
///
/// The wall clock is read once. Afterwards it advances with the monotonic one, so a paused or
/// advanced tokio clock moves both and a stepping wall clock moves neither.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    wall: Duration,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(config: Config) -> Self {
        let clock = Arc::new(Clock::start());
        let (realm, api_key) = Realm::new(Arc::clone(&clock), &config);
        Self {
            ledger: Ledger::new(Arc::clone(&clock), config.arrivals_kept),
            gate: Mutex::new(Gate::new(&config)),
            usage: Mutex::new(Usage::of(config.quota)),
            script: Mutex::new(Script::new(
                Arc::clone(&clock),
                config.faults.clone(),
                config.seed,
            )),
            api_key,
            realm: Mutex::new(realm),
            clock,
            config,
        }
    }
}

// === impl Clock ===

impl Clock {
    pub(crate) fn start() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "JWT claims are wall-clock times; read once, then advanced monotonically"
        )]
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            start: Instant::now(),
            wall: since_epoch,
        }
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The wall clock at `now`, in seconds since the epoch.
    pub(crate) fn wall_at(&self, now: Duration) -> i64 {
        i64::try_from(self.wall.saturating_add(now).as_secs()).unwrap_or(i64::MAX)
    }
}

/// Locks `mutex`, even if it is poisoned.
///
/// The data behind every lock of this crate is consistent at each statement, so a panic of
/// another holder leaves nothing half done. No `.await` happens under a lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
