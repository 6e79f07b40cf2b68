//! One credential among those that share an IP address: its pause after a 429.

mod pause;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use self::pause::Passage;
pub(crate) use self::pause::{Pause, Try};
use crate::{
    LimitError, Limits, WaitCause,
    account::Account,
    clock,
    connection::Connections,
    queue::{Line, Queue, Waiter},
};

/// One credential's pause, and the limits that it shares with others.
#[derive(Debug)]
pub(crate) struct Credential {
    pub(crate) account: Arc<Queue<Account>>,
    pub(crate) connections: Arc<Queue<Connections>>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) line: Line,
    /// Set while the pause's queue lets nobody through, so that others need not ask it. It is read
    /// without the queue's lock, and a reader may be late by one request: that one is refused like the
    /// others in flight.
    paused: AtomicBool,
    pub(crate) pause: Arc<Queue<Pause>>,
}

/// The turn to try whether a pause is over. Dropped before its request is answered, it lets another
/// try.
#[derive(Debug)]
pub(crate) struct Probe {
    /// `None` once the request is answered.
    credential: Option<Arc<Credential>>,
    number: Try,
}

// === impl Credential ===

impl Credential {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            account: Arc::new(Queue::new(Account::new(&limits))),
            connections: Arc::new(Queue::new(Connections::new(&limits))),
            limits: Arc::new(limits),
            line: Line::Back,
            paused: AtomicBool::new(false),
            pause: Arc::new(Queue::new(Pause::new())),
        }
    }

    /// Another one behind the same limits.
    pub(crate) fn another(&self, line: Line) -> Self {
        Self {
            account: Arc::clone(&self.account),
            connections: Arc::clone(&self.connections),
            limits: Arc::clone(&self.limits),
            line,
            paused: AtomicBool::new(false),
            pause: Arc::new(Queue::new(Pause::new())),
        }
    }

    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Whether one that has this try, or none, is to wait: only the last one tries.
    #[inline]
    pub(crate) fn must_pause(&self, probe: Option<&Probe>) -> bool {
        self.is_paused()
            && !probe.is_some_and(|probe| self.pause.read(|pause| pause.is_tried_by(probe.number)))
    }

    /// Until when it pauses, if it does.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.pause.read(|pause| pause.told().max(pause.until()))
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

    /// Waits until it pauses no more, or until it is this one's turn to try.
    pub(crate) fn wait_for_pause(&self) -> Waiter<Pause> {
        Waiter::new(Arc::clone(&self.pause), self.line)
    }

    /// What a wait for the end of the pause came to.
    ///
    /// # Errors
    /// When the longest wait has passed, or when the service says that it will be very long.
    pub(crate) fn probe(
        self: &Arc<Self>,
        passed: Result<Passage, LimitError>,
    ) -> Result<Option<Probe>, LimitError> {
        match passed {
            Ok(Passage::Free) => Ok(None),
            Ok(Passage::Tries(number)) => Ok(Some(Probe {
                credential: Some(Arc::clone(self)),
                number,
            })),
            // For one who does not wait: nobody can tell how long a try takes.
            Err(error) if !error.is_rejected() => Err(error),
            Ok(Passage::Told) | Err(_) => {
                let now = clock::now();
                let until = self.paused_until().filter(|until| *until > now);
                let wait = until.map(|until| until.saturating_duration_since(now));
                Err(LimitError::rejected(WaitCause::Pause, wait))
            }
        }
    }
}

// === impl Probe ===

impl Probe {
    /// The request is answered, and says what follows.
    pub(crate) fn answered(mut self) -> Try {
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
