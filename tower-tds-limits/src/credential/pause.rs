//! The pause after a 429: closed for a time, then one try, then open or closed again.

use std::time::Duration;

use tokio::time::Instant;

use crate::gate::{Admit, Earliest};

/// A pure state machine over `now`.
#[derive(Debug)]
pub(crate) struct Pause {
    state: State,
    /// How long the next pause is that the service gives no length for.
    usual: Duration,
    /// When the service says that it ends, where that is longer than anybody waits.
    told: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    // ## Open => Closed
    Open,
    // ## Closed => Trying
    Closed {
        until: Instant,
    },
    /// One request is on its way.
    // ## Trying => (Open | Closed)
    Trying {
        since: Instant,
    },
}

// === impl Pause ===

impl Pause {
    pub(crate) const fn new() -> Self {
        Self {
            state: State::Open,
            usual: SHORTEST,
            told: None,
        }
    }

    /// When it ends, where that is too long to wait for.
    pub(crate) const fn told(&self) -> Option<Instant> {
        self.told
    }

    pub(crate) const fn until(&self) -> Option<Instant> {
        match self.state {
            State::Open => None,
            State::Closed { until } | State::Trying { since: until } => Some(until),
        }
    }

    /// A request was refused at `now`, with a hint for how long to wait. Gives the length of the
    /// pause if this began it.
    ///
    /// Those in flight when it began may find it longer by their hints, and are no news. What the
    /// one that tried is told counts, also where it is shorter than what was told before.
    pub(crate) fn refuse(
        &mut self,
        now: Instant,
        hint: Option<Duration>,
        tried: bool,
    ) -> Option<Duration> {
        if let Some(hint) = hint {
            let end = now.checked_add(hint).filter(|_| hint > LONGEST);
            self.told = if tried { end } else { end.max(self.told) };
        }
        let hint = hint.map(|hint| hint.min(LONGEST));
        match self.state {
            State::Closed { until } => {
                let hinted = now.checked_add(hint.unwrap_or_default());
                let until = hinted.map_or(until, |hinted| hinted.max(until));
                self.state = State::Closed { until };
                None
            }
            State::Trying { .. } if !tried => None,
            State::Open | State::Trying { .. } => {
                let wait = hint.unwrap_or(self.usual).max(SHORTEST);
                self.usual = self.usual.saturating_mul(2).min(LONGEST);
                let until = now.checked_add(wait).unwrap_or(now);
                self.state = State::Closed { until };
                Some(wait)
            }
        }
    }

    /// The one that tried was accepted.
    pub(crate) fn end(&mut self) {
        *self = Self::new();
    }

    /// The one that tried got no answer: another may.
    pub(crate) fn untried(&mut self) {
        if let State::Trying { since } = self.state {
            self.state = State::Closed { until: since };
        }
    }
}

impl Admit for Pause {
    /// Whether this one tries.
    type Grant = bool;

    fn earliest(&mut self, now: Instant) -> Earliest {
        match self.state {
            State::Open => Earliest::Now,
            State::Closed { until } if until <= now => Earliest::Now,
            State::Closed { until } => Earliest::At(until),
            State::Trying { .. } => Earliest::OnReturn,
        }
    }

    fn admit(&mut self, now: Instant) -> bool {
        let tries = self.state != State::Open;
        if tries {
            self.state = State::Trying { since: now };
        }
        tries
    }

    fn admit_undated(&mut self) -> Option<bool> {
        (self.state == State::Open).then_some(false)
    }
}

/// Shorter pauses only burn what is left of the quota.
const SHORTEST: Duration = Duration::from_secs(1);

/// One request a minute finds out whether a quota of a day is there again, and is no load. Nobody
/// else waits for so long: they are told.
const LONGEST: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
