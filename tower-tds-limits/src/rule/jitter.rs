//! Even spacing that allows for the jitter seen so far: faster than any proof, and right only as
//! long as the network stays as it was.
//!
//! If sends are `(period + J) / limit` apart, and no request is delayed by more than `J` longer
//! than another on its way to being counted, no period holds more than `limit` counts: `limit`
//! gaps span `period + J` at the sender, and `period` at least at the service.

use crate::{
    Quota,
    clock::{Tick, nanos},
};

/// Paces by what it has learned, and has nothing to say until then.
#[derive(Debug)]
pub(crate) struct Jitter {
    limit: u64,
    hold: u64,
    /// How long answers took since the last turn, and between the two turns before.
    now: Spread,
    before: Spread,
    turns_at: Tick,
    pace: Option<Even>,
}

#[derive(Debug, Clone, Copy)]
struct Spread {
    least: u64,
    most: u64,
    answers: u32,
}

/// Spacing in force.
#[derive(Debug, Clone, Copy)]
struct Even {
    interval: u64,
    due: Tick,
    /// Until here the proven rules hold as well: what they granted at once is not spaced.
    alone_from: Tick,
}

/// What the pace says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// Nothing: ask the proven rules.
    Unknown,
    /// From then on, if the proven rules agree.
    And(Tick),
    /// From then on.
    Alone(Tick),
}

// === impl Jitter ===

impl Jitter {
    pub(crate) fn new(quota: Quota) -> Self {
        Self {
            limit: u64::from(quota.requests().get()),
            hold: nanos(quota.hold()),
            now: Spread::NONE,
            before: Spread::NONE,
            turns_at: Tick::ZERO,
            pace: None,
        }
    }

    pub(crate) fn spacing(&self, seen: Tick) -> Spacing {
        match &self.pace {
            None => Spacing::Unknown,
            Some(even) if seen < even.alone_from => Spacing::And(even.due),
            Some(even) => Spacing::Alone(even.due),
        }
    }

    pub(crate) fn grant(&mut self, now: Tick) {
        if let Some(even) = &mut self.pace {
            // A timer's lateness is made good, so that it does not add up.
            let late = even.due.plus(CATCH_UP) >= now;
            even.due = if late { even.due } else { now }.plus(even.interval);
        }
    }

    /// A request that was granted was never sent.
    pub(crate) fn withdraw(&mut self) {
        if let Some(even) = &mut self.pace {
            even.due = even.due.minus(even.interval);
        }
    }

    /// An answer came at `now`, so long after its request was granted.
    pub(crate) fn learn(&mut self, now: Tick, took: u64) {
        if now >= self.turns_at {
            if self.now.answers >= ENOUGH {
                self.before = self.now;
            }
            self.now = Spread::NONE;
            self.turns_at = now.plus(TURN);
        }
        self.now.add(took);
        let jitter = self.before.with(self.now);
        if self.before.answers < ENOUGH || jitter > LARGEST {
            self.pace = None;
            return;
        }
        let span = self.hold.saturating_add(jitter).saturating_add(CATCH_UP);
        let interval = span.div_ceil(self.limit);
        let even = self.pace.get_or_insert(Even {
            interval,
            due: now,
            alone_from: now.plus(self.hold),
        });
        even.interval = interval;
    }
}

// === impl Spread ===

impl Spread {
    const NONE: Self = Self {
        least: u64::MAX,
        most: 0,
        answers: 0,
    };

    fn add(&mut self, took: u64) {
        self.least = self.least.min(took);
        self.most = self.most.max(took);
        self.answers = self.answers.saturating_add(1);
    }

    /// The longest less the shortest of both.
    fn with(self, other: Self) -> u64 {
        let most = self.most.max(other.most);
        most.saturating_sub(self.least.min(other.least))
    }
}

/// Ten seconds: a rare stall is remembered for ten to twenty.
const TURN: u64 = 10_000_000_000;

/// Fewer answers than this say nothing about the spread.
const ENOUGH: u32 = 50;

/// 150 ms: beyond it the proven rules are as fast.
const LARGEST: u64 = 150_000_000;

/// What a timer is late by: 1.1 ms as a rule, 2 to 2.6 ms one time in a hundred (the study's
/// measurement of tokio's timer on an idle machine).
const CATCH_UP: u64 = 2_000_000;

#[cfg(test)]
mod tests;
