//! Counts beside the simulated service: for each quota a meter and models, by their own clock.

use std::time::Duration;

use tds_sim::{Meter, Rule};

use crate::models::Models;

/// A quota, the way in which it is counted, and by which clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counting {
    pub(crate) rule: Rule,
    pub(crate) limit: u32,
    pub(crate) per: Duration,
    pub(crate) clock: Clock,
}

/// A service's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Clock {
    /// The client's own.
    Exact,
    /// Faster by these parts per million, and in whole milliseconds.
    Ticks(i32),
}

/// Watches the arrivals without any effect on the client.
#[derive(Debug)]
pub(crate) struct Judge {
    clock: Clock,
    meter: Meter,
    pub(crate) models: Models,
    /// Arrivals that the meter did not accept.
    pub(crate) refused: Vec<Duration>,
}

// === impl Counting ===

impl Counting {
    /// 50 a second, by the client's clock.
    pub(crate) fn of_50(rule: Rule) -> Self {
        Self {
            rule,
            limit: 50,
            per: Duration::from_secs(1),
            clock: Clock::Exact,
        }
    }

    /// Returns a quota per minute, by the client's clock.
    pub(crate) fn a_minute(rule: Rule, limit: u32) -> Self {
        Self {
            limit,
            per: Duration::from_secs(60),
            ..Self::of_50(rule)
        }
    }

    pub(crate) fn by(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    pub(crate) fn meter(self) -> Meter {
        self.rule.meter(self.limit, self.per)
    }

    pub(crate) fn judge(self) -> Judge {
        Judge {
            clock: self.clock,
            meter: self.meter(),
            models: Models::new(self.limit, self.per),
            refused: Vec::new(),
        }
    }
}

// === impl Judge ===

impl Judge {
    pub(crate) fn arrive(&mut self, now: Duration) {
        let now = self.clock.read(now);
        self.models.arrive(now);
        if !self.meter.arrive(now) {
            self.refused.push(now);
        }
    }

    pub(crate) fn end(&mut self, arrived: Duration, now: Duration) {
        let (arrived, now) = (self.clock.read(arrived), self.clock.read(now));
        self.models.end(now);
        self.meter.end(arrived, now);
    }
}

// === impl Clock ===

impl Clock {
    fn read(self, at: Duration) -> Duration {
        match self {
            Self::Exact => at,
            Self::Ticks(faster) => {
                // The clock has an offset, so that its ticks differ from the client's.
                let at = (at + Duration::from_micros(12_345_678)).as_nanos() as i128;
                let nanos = at * (1_000_000 + i128::from(faster)) / 1_000_000;
                Duration::from_millis(u64::try_from(nanos / 1_000_000).expect("a short run"))
            }
        }
    }
}
