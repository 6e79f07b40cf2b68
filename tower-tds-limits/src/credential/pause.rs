//! The pause after a 429: closed for a time, then one try, then open or closed again.
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
    /// How long the next pause is that the service gives no length for.
    usual: Duration,
    /// When the service says that it ends, where that is longer than anybody waits.
    told: Option<Instant>,
    /// The last one that tried.
    last: Try,
}

/// A request that tries whether a pause is over: its number among those that did, from one.
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
    /// One request is on its way, and waited for until then.
    // ## Trying => (Open | Closed)
    Trying {
        since: Instant,
        until: Instant,
    },
}

/// How one leaves the pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    /// There is none.
    Free,
    /// It may be over, and this one tries.
    Tries(Try),
    /// It is too long to wait for.
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

    /// When it ends, where that is too long to wait for.
    pub(crate) const fn told(&self) -> Option<Instant> {
        self.told
    }

    /// Whether it is too long to wait for. Once it should have been over it is as any other.
    fn is_told(&self, now: Instant) -> bool {
        self.told.is_some_and(|told| told > now)
    }

    pub(crate) const fn until(&self) -> Option<Instant> {
        match self.state {
            State::Open => None,
            State::Closed { until } | State::Trying { since: until, .. } => Some(until),
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
        tried: Option<Try>,
    ) -> Option<Duration> {
        // One that was given up says no more than others do.
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

    /// One that tried was accepted. Says whether the pause is over: one that was given up, and is
    /// accepted late, says nothing of what others have been told since.
    pub(crate) fn end(&mut self, tried: Try) -> bool {
        let over = tried == self.last;
        if over {
            self.state = State::Open;
            self.usual = SHORTEST;
            self.told = None;
        }
        over
    }

    /// Whether this one is the try that is waited for.
    pub(crate) fn is_tried_by(&self, tried: Try) -> bool {
        matches!(self.state, State::Trying { .. }) && tried == self.last
    }

    /// The one that tried got no answer: another may, if none does.
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

/// A try that has no answer by then is given up, and another may try: as long as anything is
/// waited for of which nobody can know whether it comes.
const LONGEST_TRY: Duration = Duration::from_secs(30);

/// Shorter pauses only burn what is left of the quota.
const SHORTEST: Duration = Duration::from_secs(1);

/// One request a minute finds out whether a quota of a day is there again, and is no load. Nobody
/// else waits for so long: they are told.
const LONGEST: Duration = Duration::from_secs(60);

/// Whoever is told more has waited for long enough to be told again.
const YEAR: Duration = Duration::from_secs(366 * 86_400);

#[cfg(test)]
mod tests;
