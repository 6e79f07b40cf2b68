//! One API key: its number, its line, and the limits that it shares with others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tower_tds_outcome::Outcome;

use crate::{
    account::{
        Account, Grant,
        reactions::{Begins, Key, LONGEST},
    },
    error::{RemainingWait, WaitCause},
    limits::Limits,
    sockets::Connections,
    wait::{Line, shared::Shared},
};

/// One credential, and the limits that it shares with other credentials.
#[derive(Debug)]
pub(crate) struct Credential {
    key: Key,
    pub(crate) line: Line,
    pub(crate) account: Arc<Shared<Account>>,
    pub(crate) connections: Arc<Shared<Connections>>,
    pub(crate) limits: Arc<Limits>,
    /// Whether the account holds a pause of this credential; if not, calls do not take its lock. A
    /// call that reads the flag late is refused like the others in flight.
    is_paused: AtomicBool,
}

/// Pause of a credential after a 429, as instants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pause {
    /// When calls are sent again.
    pub(crate) until: Instant,
    /// End that the service announced. It may be later than `until`.
    announced: Instant,
}

// === impl Credential ===

impl Credential {
    pub(crate) fn new(limits: Limits) -> Self {
        let account = Arc::new(Shared::new(Account::new(&limits)));
        let connections = Arc::new(Shared::new(Connections::new(&limits)));
        Self::of(account, connections, Arc::new(limits), Line::Back)
    }

    /// Another credential behind the same limits.
    pub(crate) fn another(&self, line: Line) -> Self {
        let (account, connections) = (Arc::clone(&self.account), Arc::clone(&self.connections));
        Self::of(account, connections, Arc::clone(&self.limits), line)
    }

    fn of(
        account: Arc<Shared<Account>>,
        connections: Arc<Shared<Connections>>,
        limits: Arc<Limits>,
        line: Line,
    ) -> Self {
        Self {
            key: account.read(|account, _| account.reactions.key()),
            line,
            account,
            connections,
            limits,
            is_paused: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        // Relaxed: the flag publishes nothing, and the pause is read under a lock.
        self.is_paused.load(Ordering::Relaxed)
    }

    /// Returns the pause, if calls have to wait at `now`.
    #[inline]
    pub(crate) fn pause_at(&self, now: Instant) -> Option<Pause> {
        let pause = self.is_paused().then(|| self.pause()).flatten();
        pause.filter(|pause| now < pause.until)
    }

    /// Returns the announced end of the pause, if no response was accepted since it began.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.pause().map(|pause| pause.announced)
    }

    /// Records an outcome that closes something or may end a pause.
    #[cold]
    pub(crate) fn react(&self, now: Instant, grant: Grant, outcome: Outcome) -> Begins {
        let begins = self.account.update(|account| {
            let begins = account.react(now, grant, outcome, self.key);
            let is_paused = account.pause_of(self.key).is_some();
            self.is_paused.store(is_paused, Ordering::Relaxed);
            begins
        });
        if outcome == Outcome::ConnectionsExceeded {
            // Reads the account under this lock, so that the sockets end up with its last change.
            self.connections.update(|connections| {
                connections.close(self.account.read(|account, _| account.sockets()));
            });
        }
        begins
    }

    fn pause(&self) -> Option<Pause> {
        let pause = self.account.read(|account, _| account.pause_of(self.key));
        pause.map(|(until, announced)| Pause { until, announced })
    }
}

impl Drop for Credential {
    fn drop(&mut self) {
        if self.is_paused() {
            self.account
                .read(|account, _| account.reactions.forget(self.key));
        }
    }
}

// === impl Pause ===

impl Pause {
    /// Returns the wait for the announced end.
    pub(crate) fn wait(&self, now: Instant) -> RemainingWait {
        RemainingWait {
            cause: WaitCause::Pause,
            left: Some(self.announced.saturating_duration_since(now)),
        }
    }

    /// Whether the announced end is too late to wait for.
    pub(crate) fn is_long(&self, now: Instant) -> bool {
        self.announced.saturating_duration_since(now) > Duration::from_nanos(LONGEST)
    }
}
