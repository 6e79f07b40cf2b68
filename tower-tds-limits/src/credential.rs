//! One API key: the limits that it shares with others, and its pause after a 429.
#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    Limits, WaitCause,
    account::Account,
    connection::sockets::Connections,
    wait::{Line, Refusal, shared::Shared},
};

/// One credential's pause, and the limits that it shares with other credentials.
#[derive(Debug)]
pub(crate) struct Credential {
    pub(crate) account: Arc<Shared<Account>>,
    pub(crate) connections: Arc<Shared<Connections>>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) line: Line,
    /// Whether there is a pause. Without one, calls do not take its lock. A call may read the flag
    /// late, and is then refused like the others in flight.
    is_paused: AtomicBool,
    /// Guards the pause alone, and is held for arithmetic only.
    pause: Mutex<Option<Pause>>,
}

/// The pause from a 429 to the next accepted response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pause {
    /// Nothing is sent before this.
    pub(crate) until: Instant,
    /// The end that the service announced. It may be later than `until`.
    announced: Instant,
    /// The length of this pause. The next one is twice as long if the service announces none.
    length: Duration,
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
            pause: Mutex::new(None),
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
            pause: Mutex::new(None),
        }
    }

    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        // Relaxed: the flag publishes nothing, and the pause has a lock of its own.
        self.is_paused.load(Ordering::Relaxed)
    }

    /// The pause, if calls have to wait at `now`.
    #[inline]
    pub(crate) fn pause_at(&self, now: Instant) -> Option<Pause> {
        let pause = self.is_paused().then(|| *self.pause()).flatten();
        pause.filter(|pause| now < pause.until)
    }

    /// The announced end of the pause, if no response was accepted since it began.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.pause().map(|pause| pause.announced)
    }

    /// Records a 429 at `now`, with the hint of its response. Returns the length of the pause if
    /// one begins.
    pub(crate) fn refused(&self, now: Instant, hint: Option<Duration>) -> Option<Duration> {
        let mut pause = self.pause();
        let last = *pause;
        let is_within = last.is_some_and(|last| now < last.until);
        let usual = last.map_or(SHORTEST, |last| last.length.saturating_mul(2).min(LONGEST));
        let wait = match hint {
            Some(hint) => hint.min(YEAR).max(SHORTEST),
            None if is_within => Duration::ZERO,
            None => usual,
        };
        let ends = |wait| now.checked_add(wait).unwrap_or(now);
        let mut next = Pause {
            until: ends(wait.min(LONGEST)),
            announced: ends(wait),
            length: wait.min(LONGEST),
        };
        if let Some(last) = last {
            if is_within {
                // The refused request was sent before the pause, so this 429 can only lengthen the
                // pause.
                next.until = next.until.max(last.until);
                next.length = last.length;
            }
            if is_within || hint.is_none() {
                next.announced = next.announced.max(last.announced);
            }
        }
        *pause = Some(next);
        self.is_paused.store(true, Ordering::Relaxed);
        (!is_within).then_some(wait)
    }

    /// Records an accepted response. It ends the pause if calls do not wait for it any more.
    pub(crate) fn accepted(&self, now: Instant) {
        let mut pause = self.pause();
        if pause.take_if(|pause| pause.until <= now).is_some() {
            self.is_paused.store(false, Ordering::Relaxed);
        }
    }

    fn pause(&self) -> MutexGuard<'_, Option<Pause>> {
        self.pause.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Pause ===

impl Pause {
    /// The wait for the announced end.
    pub(crate) fn wait(&self, now: Instant) -> Refusal {
        Refusal {
            cause: WaitCause::Pause,
            wait: Some(self.announced.saturating_duration_since(now)),
        }
    }

    /// Whether the announced end is too late to wait for.
    pub(crate) fn is_long(&self, now: Instant) -> bool {
        self.announced.saturating_duration_since(now) > LONGEST
    }
}

/// A shorter pause only leads to more refused requests.
const SHORTEST: Duration = Duration::from_secs(1);

/// Calls do not wait longer than this: they are rejected. Once a minute calls are sent, whatever
/// end was announced. They show whether a daily quota was reset, so no announced end stops a
/// credential for ever.
const LONGEST: Duration = Duration::from_secs(60);

/// Longer announced waits count as a year, which cannot overflow an instant.
const YEAR: Duration = Duration::from_secs(366 * 86_400);

#[cfg(test)]
mod tests;
