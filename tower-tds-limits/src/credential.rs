//! What concerns one credential among those that share an IP address: the pause after a 429.

mod pause;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;

pub(crate) use self::pause::Try;
use self::pause::{Passage, Pause};
use crate::{
    Leases, LimitError, Limits, WaitCause,
    account::Account,
    clock,
    connection::Connections,
    queue::{Line, Queue, Waiter},
    waits::Waits,
};

/// One credential's pause, and the limits that it shares with others.
#[derive(Debug)]
pub(crate) struct Credential {
    account: Arc<Queue<Account>>,
    connections: Arc<Queue<Connections>>,
    /// Who else keeps the quotas, if anybody does.
    leases: Option<Arc<dyn Leases>>,
    notice: Duration,
    line: Line,
    /// Set while the pause's queue lets nobody through, so that others need not ask it. It is read
    /// without the queue's lock, and a reader may be late by one request: that one is refused like the
    /// others in flight.
    paused: AtomicBool,
    pause: Arc<Queue<Pause>>,
}

/// Waits while a credential pauses. Made by the first request that has to.
#[derive(Default)]
pub(crate) struct PauseWaiter {
    /// And since when.
    waiter: Option<(Waiter<Pause>, Instant)>,
}

/// The turn to try whether a pause is over. Dropped before the request is sent, it lets another
/// try.
#[derive(Debug)]
pub(crate) struct Probe {
    /// `None` once the request is sent.
    credential: Option<Arc<Credential>>,
    number: Try,
}

// === impl Credential ===

impl Credential {
    pub(crate) fn new(limits: &Limits, leases: Option<Arc<dyn Leases>>) -> Self {
        let notice = limits.notice();
        Self::behind(
            Arc::new(Queue::new(Account::new(limits), notice)),
            Arc::new(Queue::new(Connections::new(limits), notice)),
            leases,
            notice,
            Line::Back,
        )
    }

    /// Another one behind the same limits.
    pub(crate) fn another(&self, line: Line) -> Self {
        Self::behind(
            Arc::clone(&self.account),
            Arc::clone(&self.connections),
            self.leases.clone(),
            self.notice,
            line,
        )
    }

    fn behind(
        account: Arc<Queue<Account>>,
        connections: Arc<Queue<Connections>>,
        leases: Option<Arc<dyn Leases>>,
        notice: Duration,
        line: Line,
    ) -> Self {
        Self {
            account,
            connections,
            leases,
            notice,
            line,
            paused: AtomicBool::new(false),
            pause: Arc::new(Queue::new(Pause::new(), notice)),
        }
    }

    pub(crate) fn account(&self) -> &Arc<Queue<Account>> {
        &self.account
    }

    pub(crate) fn connections(&self) -> &Arc<Queue<Connections>> {
        &self.connections
    }

    #[inline]
    pub(crate) fn leases(&self) -> Option<&Arc<dyn Leases>> {
        self.leases.as_ref()
    }

    pub(crate) fn line(&self) -> Line {
        self.line
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Until when it pauses, if it does.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.pause.read(|pause| pause.told().max(pause.until()))
    }

    /// How many wait for the end of the pause, and what was waited so far.
    pub(crate) fn waiting<T>(&self, read: impl FnOnce(usize, &Waits) -> T) -> T {
        self.pause
            .read_all(|_, waiting, waits| read(waiting, waits))
    }

    /// A request was refused because the credential has made too many. Gives for how long it
    /// pauses if that is news.
    pub(crate) fn refuse(&self, hint: Option<Duration>, tried: Option<Try>) -> Option<Duration> {
        self.pause.update_now(|pause, now| {
            self.paused.store(true, Ordering::Relaxed);
            pause.refuse(now, hint, tried)
        })
    }

    /// The request that tried was accepted: the pause is over for all, if no other has tried since.
    pub(crate) fn accept(&self, tried: Try) {
        self.pause.update(|pause| {
            if pause.end(tried) {
                self.paused.store(false, Ordering::Relaxed);
            }
        });
    }

    /// The request that tried got no answer: another may.
    pub(crate) fn untried(&self, tried: Try) {
        self.pause.update(|pause| pause.untried(tried));
    }

    /// When to try again, as an error for one who does not wait. Nobody can tell while one tries.
    fn rejection(&self) -> LimitError {
        let now = clock::now();
        let until = self.paused_until().filter(|until| *until > now);
        let wait = until.map(|until| until.saturating_duration_since(now));
        LimitError::rejected(WaitCause::Pause, wait)
    }
}

// === impl PauseWaiter ===

impl PauseWaiter {
    /// Waits until the credential pauses no more, or until it is this one's turn to try. `since`
    /// is when the wait began, if that was before the pause.
    ///
    /// # Errors
    /// When the longest wait has passed, or when the service says that it will be very long.
    pub(crate) fn poll_over(
        &mut self,
        credential: &Arc<Credential>,
        since: Option<Instant>,
        max_wait: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Probe>, LimitError>> {
        let (waiter, _) = self.waiter.get_or_insert_with(|| {
            let since = since.unwrap_or_else(clock::now);
            let pause = Arc::clone(&credential.pause);
            let mut waiter = Waiter::new(pause, credential.line, max_wait);
            waiter.waiting_since(since);
            (waiter, since)
        });
        waiter.poll_pass(cx).map(|passed| match passed {
            Ok(Passage::Free) => Ok(None),
            Ok(Passage::Tries(number)) => Ok(Some(Probe {
                credential: Some(Arc::clone(credential)),
                number,
            })),
            Ok(Passage::Told) => Err(credential.rejection()),
            // Nobody can tell how long a try takes.
            Err(error) if error.is_rejected() => Err(credential.rejection()),
            Err(error) => Err(error),
        })
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiter.is_some()
    }

    /// Since when somebody has waited here, if anybody has.
    pub(crate) fn take_since(&mut self) -> Option<Instant> {
        self.waiter.take().map(|(_, since)| since)
    }
}

impl fmt::Debug for PauseWaiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PauseWaiter").finish_non_exhaustive()
    }
}

// === impl Probe ===

impl Probe {
    /// The request is sent, and its permit takes over.
    pub(crate) fn hand_over(mut self) -> Try {
        self.credential = None;
        self.number
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if let Some(credential) = &self.credential {
            credential.untried(self.number);
        }
    }
}
