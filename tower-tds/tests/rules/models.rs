//! What a service can have counted, by models that share nothing with the limiter nor with the
//! simulated service: each keeps the largest value it has come to.

use std::{collections::VecDeque, time::Duration};

/// Sees requests arrive and end, in order.
#[derive(Debug, Default)]
pub(crate) struct Models {
    /// The arrivals of the last two seconds.
    arrived: VecDeque<Duration>,
    first: Option<Duration>,
    last: Option<Duration>,
    count: u32,
    /// The leaky bucket at the last arrival.
    level: f64,
    open: usize,
    /// The ends of the last second.
    ended: VecDeque<Duration>,
    pub(crate) largest: Largest,
}

/// What 50 a second allows to be 50, for a bucket its burst.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Largest {
    /// Arrivals in any half-open second: no fixed window and no log sees more.
    pub(crate) second: usize,
    /// The sum of a weighing counter, whenever its windows begin.
    pub(crate) estimate: f64,
    /// How many were ahead of one that arrived in a bucket that drains 50 a second.
    pub(crate) level: f64,
    /// Requests that were in flight at some time of the second up to an arrival.
    pub(crate) in_flight: usize,
}

// === impl Models ===

impl Models {
    pub(crate) fn arrive(&mut self, now: Duration) {
        let passed = now - self.last.unwrap_or(now);
        self.level = (self.level - passed.as_secs_f64() * 50.0).max(0.0);
        self.largest.level = self.largest.level.max(self.level);
        self.level += 1.0;

        while self.ended.front().is_some_and(|at| *at + SECOND <= now) {
            self.ended.pop_front();
        }
        self.open += 1;
        self.largest.in_flight = self.largest.in_flight.max(self.open + self.ended.len());

        while self
            .arrived
            .front()
            .is_some_and(|at| *at + 2 * SECOND <= now)
        {
            self.arrived.pop_front();
        }
        self.arrived.push_back(now);
        let before = self.arrived.partition_point(|at| *at + SECOND <= now);
        self.largest.second = self.largest.second.max(self.arrived.len() - before);
        self.largest.estimate = self.largest.estimate.max(self.estimate(now));

        self.first = self.first.or(Some(now));
        self.last = Some(now);
        self.count += 1;
    }

    pub(crate) fn end(&mut self, now: Duration) {
        self.open -= 1;
        self.ended.push_back(now);
    }

    /// Arrivals a second, from the first to the last.
    pub(crate) fn rate(&self) -> f64 {
        let span = self.last.unwrap_or_default() - self.first.unwrap_or_default();
        f64::from(self.count - 1) / span.as_secs_f64()
    }

    /// `previous * (1 - x) + current` at `now`, for whichever begin of the current window makes it
    /// largest. Between two of those tried below it only grows with the begin, up to the next.
    fn estimate(&self, now: Duration) -> f64 {
        let all = &self.arrived;
        let sum = |begin: Duration, previous: usize, current: usize| {
            let left = (begin + SECOND - now).as_secs_f64();
            previous as f64 * left + current as f64
        };
        let mut largest = 0.0_f64;
        // The window begins at an arrival, the one of now among them.
        let mut before = 0;
        for (nth, begin) in all.iter().copied().enumerate() {
            if begin + SECOND > now && (nth == 0 || all[nth - 1] < begin) {
                while all[before] + SECOND < begin {
                    before += 1;
                }
                largest = largest.max(sum(begin, nth - before, all.len() - nth));
            }
        }
        // It begins a second after an arrival, which is just not forgotten yet.
        let mut current = 0;
        for (nth, at) in all.iter().copied().enumerate() {
            let begin = at + SECOND;
            if begin <= now && (nth == 0 || all[nth - 1] < at) {
                while all[current] < begin {
                    current += 1;
                }
                largest = largest.max(sum(begin, current - nth, all.len() - current));
            }
        }
        largest
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_models_see_what_is_too_much() {
    let ms = Duration::from_millis;
    // 50 at once and 50 more after a second: no second holds more, and a counter whose window
    // begins between them weighs both.
    let mut models = Models::default();
    for at in [ms(10), ms(1_010)] {
        for _ in 0..50 {
            models.arrive(at);
            models.end(at);
        }
    }
    assert_eq!((models.largest.second, models.largest.in_flight), (50, 50));
    assert!((models.largest.estimate - 100.0).abs() < 1e-9);
    assert!((models.largest.level - 49.0).abs() < 1e-9);
    assert!((models.rate() - 99.0).abs() < 1e-9);

    // A steady 50 a second is at the limit of each.
    let mut models = Models::default();
    for nth in 0..1_000 {
        models.arrive(ms(20 * nth));
    }
    assert_eq!(
        (models.largest.second, models.largest.in_flight),
        (50, 1_000)
    );
    assert!((models.largest.estimate - 51.0).abs() < 1e-9);
    assert!(models.largest.level < 1e-9);
}
