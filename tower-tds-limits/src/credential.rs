//! Pause of one credential after a 429.

mod pause;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::time::Instant;

use self::pause::Passage;
pub(crate) use self::pause::{Pause, Try};
use crate::{
    LimitError, Limits, Outcome, WaitCause,
    account::Account,
    connection::Connections,
    events,
    wait::{Line, Refusal, Shared},
};

/// One credential's pause, and the limits that it shares with other credentials.
#[derive(Debug)]
pub(crate) struct Credential {
    pub(crate) account: Arc<Shared<Account>>,
    pub(crate) connections: Arc<Shared<Connections>>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) line: Line,
    /// Set while the pause lets no call through, so that calls need not take the pause's lock. A
    /// reader may be late by one request, which is refused like the others in flight.
    is_paused: AtomicBool,
    pub(crate) pause: Arc<Shared<Pause>>,
}

/// The request that tests whether a pause is over. If it is dropped before its response, another
/// request may test.
#[derive(Debug)]
pub(crate) struct Probe {
    credential: Arc<Credential>,
    number: Try,
    is_answered: bool,
}

// === impl Credential ===

impl Credential {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            account: Arc::new(Shared::new(Account::new(&limits))),
            connections: Arc::new(Shared::new(Connections::new(&limits))),
            limits: Arc::new(limits),
            line: Line::Back,
            is_paused: AtomicBool::new(false),
            pause: Arc::new(Shared::new(Pause::new())),
        }
    }

    /// Another credential behind the same limits.
    pub(crate) fn another(&self, line: Line) -> Self {
        Self {
            account: Arc::clone(&self.account),
            connections: Arc::clone(&self.connections),
            limits: Arc::clone(&self.limits),
            line,
            is_paused: AtomicBool::new(false),
            pause: Arc::new(Shared::new(Pause::new())),
        }
    }

    /// Whether a call with this probe, or with none, has to wait: only the last probe is sent.
    #[inline]
    pub(crate) fn must_pause(&self, probe: Option<&Probe>) -> bool {
        // Relaxed: the flag publishes nothing, and the pause has a lock of its own.
        self.is_paused.load(Ordering::Relaxed)
            && !probe
                .is_some_and(|probe| self.pause.read(|pause, _| pause.is_tried_by(probe.number)))
    }

    /// The end of the pause, if there is one.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.pause.read(|pause, _| pause.told().max(pause.until()))
    }

    /// Records the outcome of a response, which may be a probe's.
    pub(crate) fn learn(&self, outcome: Outcome, probe: Option<Probe>) {
        let tried = probe.map(Probe::answered);
        if let Outcome::QuotaExceeded(hint) = outcome {
            let began = self.pause.update_now(|pause, now| {
                self.is_paused.store(true, Ordering::Relaxed);
                pause.refuse(now, hint, tried)
            });
            if let Some(wait) = began {
                events::paused(wait);
            }
        } else if let Some(tried) = tried {
            let is_about_another_limit = matches!(
                outcome,
                Outcome::RateExceeded
                    | Outcome::ConnectionsExceeded
                    | Outcome::GatewayFailed
                    | Outcome::GatewayTimedOut
            );
            self.pause.update(|pause| {
                if is_about_another_limit {
                    pause.untried(tried);
                } else if pause.end(tried) {
                    self.is_paused.store(false, Ordering::Relaxed);
                }
            });
        }
    }

    /// Turns the result of the wait into a probe, or into nothing where there is no pause.
    ///
    /// # Errors
    /// When the service has announced a pause that is too long to wait for.
    pub(crate) fn probe(
        self: &Arc<Self>,
        passage: Passage,
        now: Instant,
    ) -> Result<Option<Probe>, LimitError> {
        match passage {
            Passage::Free => Ok(None),
            Passage::Tries(number) => Ok(Some(Probe {
                credential: Arc::clone(self),
                number,
                is_answered: false,
            })),
            Passage::Told => Err(self.rejection(now)),
        }
    }

    /// The wait for the end of the pause.
    pub(crate) fn wait(&self, now: Instant) -> Refusal {
        let until = self.paused_until().filter(|until| *until > now);
        let wait = until.map(|until| until.saturating_duration_since(now));
        let cause = WaitCause::Pause;
        Refusal { cause, wait }
    }

    /// The error of a call that may not wait for the end of the pause.
    pub(crate) fn rejection(&self, now: Instant) -> LimitError {
        LimitError::rejected(WaitCause::Pause, self.wait(now).wait)
    }
}

// === impl Probe ===

impl Probe {
    /// The response is there, and its outcome decides.
    fn answered(mut self) -> Try {
        self.is_answered = true;
        self.number
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if !self.is_answered {
            let number = self.number;
            self.credential.pause.update(|pause| pause.untried(number));
        }
    }
}
