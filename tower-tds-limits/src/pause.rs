//! Pause of one stack after a 429.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::error::Decision;

/// Pause of all services that one layer makes, from a 429 to the next accepted response.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// Whether there is one; if not, calls do not take the lock. A call that reads the flag late is
    /// refused like the others in flight.
    is_set: AtomicBool,
    /// Guards the last pause. It is held for arithmetic only.
    last: Mutex<Option<Paused>>,
}

/// One pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paused {
    begun: Instant,
    /// Length that the service announced. Without one, it is twice that of the last pause.
    length: Duration,
}

// === impl Pause ===

impl Pause {
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        // Relaxed: the flag publishes nothing, and the pause is read under a lock.
        self.is_set.load(Ordering::Relaxed)
    }

    /// Returns the pause, if no response was accepted since it began.
    #[inline]
    pub(crate) fn last(&self) -> Option<Paused> {
        self.is_set().then(|| *self.locked()).flatten()
    }

    /// Returns the pause, if calls have to wait at `now`.
    #[inline]
    pub(crate) fn at(&self, now: Instant) -> Option<Paused> {
        self.last().filter(|last| now < last.until())
    }

    /// Records a 429 at `now`, with the hint of its response. Returns the length of the pause that it
    /// begins, if it begins one.
    pub(crate) fn begin(&self, hint: Option<Duration>, now: Instant) -> Option<Duration> {
        let hint = hint.map(|hint| hint.clamp(SHORTEST, YEAR));
        let last = &mut *self.locked();
        if let Some(last) = last.as_mut().filter(|last| now < last.until()) {
            // The refused request was sent before this pause began, so the 429 can only lengthen it.
            let ends = now + hint.unwrap_or_default();
            last.length = last.length.max(ends.saturating_duration_since(last.begun));
            return None;
        }
        let twice = last.map_or(SHORTEST, |last| (last.length * 2).min(LONGEST));
        let length = hint.unwrap_or(twice);
        *last = Some(Paused { begun: now, length });
        self.is_set.store(true, Ordering::Relaxed);
        Some(length)
    }

    /// Records an accepted response. If its request was sent before the pause, it does not end it.
    #[cold]
    pub(crate) fn end(&self, now: Instant) {
        let last = &mut *self.locked();
        if last.is_some_and(|last| last.until() <= now) {
            *last = None;
            self.is_set.store(false, Ordering::Relaxed);
        }
    }

    fn locked(&self) -> MutexGuard<'_, Option<Paused>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Paused ===

impl Paused {
    /// When calls are sent again.
    pub(crate) fn until(self) -> Instant {
        self.begun + self.length.min(LONGEST)
    }

    /// End that the service announced.
    pub(crate) fn ends(self) -> Instant {
        self.begun + self.length
    }

    /// Returns the time until the announced end.
    pub(crate) fn left(self, now: Instant) -> Duration {
        self.ends().saturating_duration_since(now)
    }

    /// Whether a call with such a deadline is not to wait for it, and why.
    pub(crate) fn rejects(self, deadline: Option<Instant>, now: Instant) -> Option<Decision> {
        if self.left(now) > LONGEST {
            return Some(Decision::Rejected);
        }
        let is_late = deadline.is_some_and(|deadline| deadline <= self.until());
        is_late.then_some(Decision::TooLate)
    }
}

/// A shorter pause only leads to more refused requests.
const SHORTEST: Duration = Duration::from_secs(1);

/// A pause never holds calls longer than this; beyond it they are rejected. Once a minute some
/// calls are sent, whatever end was announced, because they show whether a daily quota was reset.
const LONGEST: Duration = Duration::from_secs(60);

/// Longer announced waits count as a year, which cannot overflow an instant.
const YEAR: Duration = Duration::from_secs(366 * 86_400);

#[cfg(test)]
mod tests;
