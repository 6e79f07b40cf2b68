//! The sliding-window counter: two counts that stand for a log.

use std::time::Duration;

/// Estimates the arrivals of the last `per` from those of two adjoining windows.
#[derive(Debug)]
pub(super) struct Counter {
    limit: u32,
    per: Duration,
    /// When the current window began; none before the first arrival.
    start: Option<Duration>,
    previous: u32,
    current: u32,
}

// === impl Counter ===

impl Counter {
    pub(super) fn new(limit: u32, per: Duration) -> Self {
        Self {
            limit,
            per,
            start: None,
            previous: 0,
            current: 0,
        }
    }

    pub(super) fn arrive_at(&mut self, now: Duration) -> bool {
        let passed = self.rotate_at(now);
        self.current = self.current.saturating_add(1);

        // previous * (1 - passed / per) + current > limit, times `per`: whole nanoseconds.
        let per = self.per.as_nanos();
        let left = self.per.saturating_sub(passed).as_nanos();
        let estimate = u128::from(self.previous)
            .saturating_mul(left)
            .saturating_add(u128::from(self.current).saturating_mul(per));
        estimate <= u128::from(self.limit).saturating_mul(per)
    }

    /// Makes the window that contains `now` the current one; how much of it has passed.
    fn rotate_at(&mut self, now: Duration) -> Duration {
        let passed = self.start.map(|start| now.saturating_sub(start));
        match passed {
            Some(passed) if passed < self.per => passed,
            Some(passed) if passed.saturating_sub(self.per) < self.per => {
                let passed = passed.saturating_sub(self.per);
                self.start = Some(now.saturating_sub(passed));
                self.previous = self.current;
                self.current = 0;
                passed
            }
            // The first arrival, or the windows have lost their rhythm to a pause.
            Some(_) | None => {
                self.start = Some(now);
                self.previous = 0;
                self.current = 0;
                Duration::ZERO
            }
        }
    }
}
