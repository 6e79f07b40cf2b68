//! A rule at work.

use std::time::Duration;

use super::{
    Rule, counter::Counter, fixed_window::FixedWindow, in_flight::InFlight,
    leaky_bucket::LeakyBucket, log::Log, log_all::LogAll,
};

/// Counts arrivals by one [`Rule`] and says of each whether the service accepts it.
///
/// Time is an argument: the time since the simulator's start, in non-decreasing order. A time
/// that is earlier than one seen before is read as that one, as by a service whose clock does not
/// go back.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tds_sim::Rule;
///
/// let mut meter = Rule::InFlight.meter(1, Duration::from_secs(1));
/// let arrived = Duration::from_millis(100);
/// assert!(meter.arrive(arrived));
/// assert!(!meter.arrive(Duration::from_secs(9))); // the first has not ended
/// meter.end(arrived, Duration::from_secs(10));
/// assert!(meter.arrive(Duration::from_secs(11)));
/// ```
#[derive(Debug)]
pub struct Meter {
    count: Count,
    /// The latest time seen.
    now: Duration,
}

#[derive(Debug)]
enum Count {
    FixedWindow(FixedWindow),
    Log(Log),
    LogAll(LogAll),
    Counter(Counter),
    LeakyBucket(LeakyBucket),
    InFlight(InFlight),
}

// === impl Meter ===

impl Meter {
    pub(super) fn new(rule: Rule, limit: u32, per: Duration) -> Self {
        let count = match rule {
            Rule::FixedWindow => Count::FixedWindow(FixedWindow::new(limit, per)),
            Rule::SlidingLog => Count::Log(Log::new(limit, per)),
            Rule::SlidingLogAll => Count::LogAll(LogAll::new(limit, per)),
            Rule::SlidingCounter => Count::Counter(Counter::new(limit, per)),
            Rule::LeakyBucket { burst } => Count::LeakyBucket(LeakyBucket::new(limit, per, burst)),
            Rule::InFlight => Count::InFlight(InFlight::new(limit, per)),
        };
        Self {
            count,
            now: Duration::ZERO,
        }
    }

    /// Counts a request that arrives at `at`; whether the service accepts it.
    pub fn arrive(&mut self, at: Duration) -> bool {
        let now = self.advance(at);
        match &mut self.count {
            Count::FixedWindow(count) => count.arrive_at(now),
            Count::Log(count) => count.arrive_at(now),
            Count::LogAll(count) => count.arrive_at(now),
            Count::Counter(count) => count.arrive_at(now),
            Count::LeakyBucket(count) => count.arrive_at(now),
            Count::InFlight(count) => count.arrive_at(now),
        }
    }

    /// An accepted request that had arrived at `arrived` has ended at `at`.
    ///
    /// Call it once for each accepted request, whichever the rule: [`Rule::InFlight`] counts by
    /// it, the others do not look. A request cannot end before it arrived: the later time holds.
    pub fn end(&mut self, arrived: Duration, at: Duration) {
        let now = self.advance(at.max(arrived));
        if let Count::InFlight(count) = &mut self.count {
            count.end_at(now);
        }
    }

    fn advance(&mut self, at: Duration) -> Duration {
        self.now = self.now.max(at);
        self.now
    }
}
