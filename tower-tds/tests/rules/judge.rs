//! Counts beside the simulated service: for each quota its meter, and auditors that share nothing with it or with the limiter,
//! by their own clock.

use std::time::Duration;

use tds_sim::{Meter, Rule};

use crate::audit::{self, Span};

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
    counting: Counting,
    meter: Meter,
    arrived: Vec<Duration>,
    /// From each arrival until an interval after its end.
    spans: Vec<Span>,
    /// Arrivals that the meter did not accept.
    pub(crate) refused: Vec<Duration>,
}

/// The largest counts. Under 50 a second each may be 50, and the level of a bucket its burst.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Largest {
    /// Arrivals in any half-open interval: no fixed window and no log sees more.
    pub(crate) interval: usize,
    /// Sum of a weighing counter, whenever its windows begin.
    pub(crate) estimate: f64,
    /// Level of a bucket that drains at the limit's rate, before an arrival.
    pub(crate) level: f64,
    /// Requests that were in flight at some time of the interval up to an arrival.
    pub(crate) in_flight: usize,
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
            counting: self,
            meter: self.meter(),
            arrived: Vec::new(),
            spans: Vec::new(),
            refused: Vec::new(),
        }
    }
}

// === impl Judge ===

impl Judge {
    pub(crate) fn arrive(&mut self, now: Duration) {
        let now = self.counting.clock.read(now);
        self.arrived.push(now);
        if !self.meter.arrive(now) {
            self.refused.push(now);
        }
    }

    pub(crate) fn end(&mut self, arrived: Duration, now: Duration) {
        let clock = self.counting.clock;
        let (arrived, now) = (clock.read(arrived), clock.read(now));
        self.spans.push((arrived, now + self.counting.per));
        self.meter.end(arrived, now);
    }

    pub(crate) fn largest(&self) -> Largest {
        let (arrived, per) = (&self.arrived, self.counting.per);
        Largest {
            interval: audit::fullest_interval(arrived, per),
            estimate: audit::fullest_counter(arrived, per),
            level: audit::fullest_bucket(arrived, self.counting.limit, per) - 1.0,
            in_flight: audit::most_open(&self.spans),
        }
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
