//! The pause after a 429: closed for a time, then one probe, then open or closed again.
#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::{num::NonZeroU32, time::Duration};

use tokio::time::Instant;

use crate::{
    WaitCause,
    wait::{Limit, Line, Opens},
};

/// A pure state machine over `now`.
#[derive(Debug)]
pub(crate) struct Pause {
    state: State,
    /// The length of the next pause, if the service gives none.
    usual: Duration,
    /// The announced end of the pause, if it is too late to wait for.
    told: Option<Instant>,
    /// The last probe.
    last: Try,
}

/// The number of a probe, from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Try(NonZeroU32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    // ## Open => Closed
    Open,
    // ## Closed => Trying
    Closed {
        until: Instant,
    },
    /// One probe is in flight; the others wait for it until `until`.
    // ## Trying => (Open | Closed)
    Trying {
        since: Instant,
        until: Instant,
    },
}

/// The result of a wait for the end of the pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    /// There is no pause.
    Free,
    /// The pause may be over, and this call is the probe.
    Tries(Try),
    /// The pause is too long to wait for.
    Told,
}

// === impl Pause ===

impl Pause {
    pub(crate) const fn new() -> Self {
        Self {
            state: State::Open,
            usual: SHORTEST,
            told: None,
            last: Try(NonZeroU32::MIN),
        }
    }

    /// The announced end, if it is too late to wait for.
    pub(crate) const fn told(&self) -> Option<Instant> {
        self.told
    }

    /// Whether the pause is too long to wait for. After its announced end it is not.
    fn is_told(&self, now: Instant) -> bool {
        self.told.is_some_and(|told| told > now)
    }

    pub(crate) const fn until(&self) -> Option<Instant> {
        match self.state {
            State::Open => None,
            State::Closed { until } | State::Trying { since: until, .. } => Some(until),
        }
    }

    /// Records a 429 at `now`, with the hint of its response. Returns the length of the pause if
    /// one began.
    ///
    /// Requests that were in flight when the pause began can only lengthen it. The probe's hint
    /// replaces the announced end, even by an earlier one.
    pub(crate) fn refuse(
        &mut self,
        now: Instant,
        hint: Option<Duration>,
        tried: Option<Try>,
    ) -> Option<Duration> {
        // An abandoned probe counts as any other request.
        let tried = tried == Some(self.last);
        if let Some(hint) = hint {
            let end = now.checked_add(hint.min(YEAR)).filter(|_| hint > LONGEST);
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

    /// Records an accepted probe. Returns whether the pause is over: an abandoned probe that is
    /// accepted late does not end it.
    pub(crate) fn end(&mut self, tried: Try) -> bool {
        let over = tried == self.last;
        if over {
            self.state = State::Open;
            self.usual = SHORTEST;
            self.told = None;
        }
        over
    }

    /// Whether this is the probe in flight.
    pub(crate) fn is_tried_by(&self, tried: Try) -> bool {
        matches!(self.state, State::Trying { .. }) && tried == self.last
    }

    /// Records a probe without a response: another request may probe, if none does.
    pub(crate) fn untried(&mut self, tried: Try) {
        if let State::Trying { since, .. } = self.state
            && tried == self.last
        {
            self.state = State::Closed { until: since };
        }
    }
}

// === impl Try ===

impl Try {
    const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Limit for Pause {
    type Grant = Passage;

    fn opens(&mut self, _line: Line, now: Instant) -> Opens {
        match self.state {
            _ if self.is_told(now) => Opens::Now,
            State::Open => Opens::Now,
            State::Closed { until } | State::Trying { until, .. } if until <= now => Opens::Now,
            State::Closed { until } | State::Trying { until, .. } => Opens::At(until),
        }
    }

    fn admit(&mut self, _line: Line, now: Instant) -> Passage {
        match self.state {
            State::Open => Passage::Free,
            State::Closed { until } | State::Trying { until, .. } if until > now => Passage::Told,
            State::Closed { .. } | State::Trying { .. } => {
                let until = now.checked_add(LONGEST_TRY).unwrap_or(now);
                self.state = State::Trying { since: now, until };
                self.last = self.last.next();
                Passage::Tries(self.last)
            }
        }
    }

    fn cause(&mut self, _line: Line, _now: Instant) -> WaitCause {
        WaitCause::Pause
    }
}

/// The longest wait for a probe's response. After it another request may probe. It is as long as
/// the wait for a server's close.
const LONGEST_TRY: Duration = Duration::from_secs(30);

/// Shorter pauses only burn what is left of the quota.
const SHORTEST: Duration = Duration::from_secs(1);

/// One probe a minute notices the reset of a daily quota, and is no load. Calls do not wait longer
/// than this: they get an error.
const LONGEST: Duration = Duration::from_secs(60);

/// Longer hints are cut to a year, far from overflowing an instant.
const YEAR: Duration = Duration::from_secs(366 * 86_400);

#[cfg(test)]
mod tests;
