//! Largest counts that a service can have, by models that share nothing with the limiter or with
//! the simulated service. Each keeps its largest value.

use std::{collections::VecDeque, time::Duration};

/// Counts the arrivals and ends of requests, in order, for a quota.
#[derive(Debug)]
pub(crate) struct Models {
    limit: f64,
    per: Duration,
    /// The arrivals of the last two intervals.
    arrived: VecDeque<Duration>,
    first: Option<Duration>,
    last: Option<Duration>,
    count: u32,
    /// The leaky bucket at the last arrival.
    level: f64,
    open: usize,
    /// The ends of the last interval.
    ended: VecDeque<Duration>,
    pub(crate) largest: Largest,
}

/// The largest counts. Under 50 a second each may be 50, and the level of a bucket its burst.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Largest {
    /// Arrivals in any half-open interval: no fixed window and no log sees more.
    pub(crate) interval: usize,
    /// The sum of a weighing counter, whenever its windows begin.
    pub(crate) estimate: f64,
    /// The level of a bucket that drains at the limit's rate, before an arrival.
    pub(crate) level: f64,
    /// Requests that were in flight at some time of the interval up to an arrival.
    pub(crate) in_flight: usize,
}

// === impl Models ===

impl Models {
    pub(crate) fn new(limit: u32, per: Duration) -> Self {
        Self {
            limit: f64::from(limit),
            per,
            arrived: VecDeque::new(),
            first: None,
            last: None,
            count: 0,
            level: 0.0,
            open: 0,
            ended: VecDeque::new(),
            largest: Largest::default(),
        }
    }

    pub(crate) fn arrive(&mut self, now: Duration) {
        let passed = now - self.last.unwrap_or(now);
        let drained = passed.div_duration_f64(self.per) * self.limit;
        self.level = (self.level - drained).max(0.0);
        self.largest.level = self.largest.level.max(self.level);
        self.level += 1.0;

        let per = self.per;
        while self.ended.front().is_some_and(|at| *at + per <= now) {
            self.ended.pop_front();
        }
        self.open += 1;
        self.largest.in_flight = self.largest.in_flight.max(self.open + self.ended.len());

        while self.arrived.front().is_some_and(|at| *at + 2 * per <= now) {
            self.arrived.pop_front();
        }
        self.arrived.push_back(now);
        let before = self.arrived.partition_point(|at| *at + per <= now);
        self.largest.interval = self.largest.interval.max(self.arrived.len() - before);
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

    /// The largest `previous * (1 - x) + current` at `now`, over all starts of the current window.
    /// Only the starts below are tried, because between two of them the value grows up to the later
    /// one.
    fn estimate(&self, now: Duration) -> f64 {
        let (all, per) = (&self.arrived, self.per);
        let sum = |begin: Duration, previous: usize, current: usize| {
            let left = (begin + per - now).div_duration_f64(per);
            previous as f64 * left + current as f64
        };
        let mut largest = 0.0_f64;
        // Windows that begin at an arrival, including the current one.
        let mut before = 0;
        for (nth, begin) in all.iter().copied().enumerate() {
            if begin + per > now && (nth == 0 || all[nth - 1] < begin) {
                while all[before] + per < begin {
                    before += 1;
                }
                largest = largest.max(sum(begin, nth - before, all.len() - nth));
            }
        }
        // Windows that begin one interval after an arrival, which the previous window still
        // contains.
        let mut current = 0;
        for (nth, at) in all.iter().copied().enumerate() {
            let begin = at + per;
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

#[test]
fn models_measure_the_largest_load() {
    let ms = Duration::from_millis;
    let models = || Models::new(50, ms(1_000));
    // 50 at once and 50 more after a second: no second holds more, and a counter whose window
    // begins between them weighs both.
    let mut seen = models();
    for at in [ms(10), ms(1_010)] {
        for _ in 0..50 {
            seen.arrive(at);
            seen.end(at);
        }
    }
    assert_eq!((seen.largest.interval, seen.largest.in_flight), (50, 50));
    assert!((seen.largest.estimate - 100.0).abs() < 1e-9);
    assert!((seen.largest.level - 49.0).abs() < 1e-9);
    assert!((seen.rate() - 99.0).abs() < 1e-9);

    // A steady 50 a second is at the limit of each.
    let mut seen = models();
    for nth in 0..1_000 {
        seen.arrive(ms(20 * nth));
    }
    assert_eq!((seen.largest.interval, seen.largest.in_flight), (50, 1_000));
    assert!((seen.largest.estimate - 51.0).abs() < 1e-9);
    assert!(seen.largest.level < 1e-9);

    // The same holds for one each twelve seconds, where five a minute are allowed.
    let mut seen = Models::new(5, ms(60_000));
    for nth in 0..100 {
        seen.arrive(ms(12_000 * nth));
    }
    assert_eq!(seen.largest.interval, 5);
    assert!((seen.largest.estimate - 6.0).abs() < 1e-9);
    assert!(seen.largest.level < 1e-9);
}
