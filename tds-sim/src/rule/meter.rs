//! A rule at work.

use std::{collections::VecDeque, time::Duration};

use crate::rule::Rule;

/// Counts arrivals by one [`Rule`] and returns for each whether the service accepts it.
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
    limit: u32,
    /// Not zero.
    per: Duration,
    /// The latest time seen.
    now: Duration,
    count: Count,
}

/// State of each rule.
#[derive(Debug)]
enum Count {
    /// The number of the current window, and what it has accepted.
    FixedWindow {
        window: u128,
        accepted: u32,
    },
    /// The accepted arrivals.
    Log(Recent),
    /// The last `limit` arrivals at most: older ones change no answer, and a flood of refused
    /// requests must not fill the memory.
    LogAll(Recent),
    Counter(Counter),
    LeakyBucket(LeakyBucket),
    /// The requests in progress, and the ends of others.
    InFlight {
        open: u32,
        ended: Recent,
    },
}

/// The instants in `(now - per, now]`.
#[derive(Debug, Default)]
struct Recent(VecDeque<Duration>);

/// The counts of two adjoining windows.
#[derive(Debug, Default)]
struct Counter {
    /// When the current window began; none before the first arrival.
    start: Option<Duration>,
    previous: u32,
    current: u32,
}

/// nginx's `limit_req`, in its arithmetic.
#[derive(Debug)]
struct LeakyBucket {
    /// Thousandths of a request.
    burst: u128,
    /// Thousandths of a request that are ahead of the drain; none before the first arrival.
    excess: Option<u128>,
    /// When `excess` was right, in milliseconds.
    last: u128,
}

// === impl Meter ===

impl Meter {
    pub(super) fn new(rule: Rule, limit: u32, per: Duration) -> Self {
        let count = match rule {
            Rule::FixedWindow => Count::FixedWindow {
                window: 0,
                accepted: 0,
            },
            Rule::SlidingLog => Count::Log(Recent::default()),
            Rule::SlidingLogAll => Count::LogAll(Recent::default()),
            Rule::SlidingCounter => Count::Counter(Counter::default()),
            Rule::LeakyBucket { burst } => Count::LeakyBucket(LeakyBucket {
                burst: REQUEST * u128::from(burst),
                excess: None,
                last: 0,
            }),
            Rule::InFlight => Count::InFlight {
                open: 0,
                ended: Recent::default(),
            },
        };
        Self {
            limit,
            per: per.max(Duration::from_nanos(1)),
            now: Duration::ZERO,
            count,
        }
    }

    /// Counts a request that arrives at `at`; whether the service accepts it.
    pub fn arrive(&mut self, at: Duration) -> bool {
        self.now = self.now.max(at);
        let (limit, per, now) = (self.limit, self.per, self.now);
        match &mut self.count {
            Count::FixedWindow { window, accepted } => {
                let current = now.as_nanos() / per.as_nanos();
                if *window != current {
                    (*window, *accepted) = (current, 0);
                }
                let accept = *accepted < limit;
                *accepted += u32::from(accept);
                accept
            }
            Count::Log(accepted) => {
                let accept = accepted.count_at(now, per) < limit;
                if accept {
                    accepted.0.push_back(now);
                }
                accept
            }
            Count::LogAll(arrived) => {
                let accept = arrived.count_at(now, per) < limit;
                arrived.0.push_back(now);
                if !accept {
                    arrived.0.pop_front();
                }
                accept
            }
            Count::Counter(counter) => counter.arrive_at(now, limit, per),
            Count::LeakyBucket(bucket) => bucket.arrive_at(now, limit, per),
            Count::InFlight { open, ended } => {
                let accept = open.saturating_add(ended.count_at(now, per)) < limit;
                *open += u32::from(accept);
                accept
            }
        }
    }

    /// An accepted request that had arrived at `arrived` has ended at `at`.
    ///
    /// Call it once for each accepted request, whichever the rule: only [`Rule::InFlight`] uses
    /// it. A request cannot end before it arrived: the later time holds.
    pub fn end(&mut self, arrived: Duration, at: Duration) {
        self.now = self.now.max(at).max(arrived);
        // An end without an arrival changes nothing.
        if let Count::InFlight {
            open: open @ 1..,
            ended,
        } = &mut self.count
        {
            *open -= 1;
            ended.0.push_back(self.now);
        }
    }
}

// === impl Recent ===

impl Recent {
    /// How many instants lie in `(now - per, now]`. The older ones are dropped.
    fn count_at(&mut self, now: Duration, per: Duration) -> u32 {
        // Written with a difference because `instant + per` may overflow.
        let old = |instant: &Duration| now.saturating_sub(*instant) >= per;
        while self.0.front().is_some_and(old) {
            self.0.pop_front();
        }
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }
}

// === impl Counter ===

impl Counter {
    fn arrive_at(&mut self, now: Duration, limit: u32, per: Duration) -> bool {
        let passed = self.rotate_at(now, per);
        self.current = self.current.saturating_add(1);

        // previous * (1 - passed / per) + current > limit, times `per`: whole nanoseconds.
        let left = per.saturating_sub(passed).as_nanos();
        let per = per.as_nanos();
        u128::from(self.previous) * left + u128::from(self.current) * per <= u128::from(limit) * per
    }

    /// Makes the window that contains `now` the current one; how much of it has passed.
    fn rotate_at(&mut self, now: Duration, per: Duration) -> Duration {
        let passed = self.start.map(|start| now.saturating_sub(start));
        match passed {
            Some(passed) if passed < per => passed,
            Some(passed) if passed.saturating_sub(per) < per => {
                let passed = passed.saturating_sub(per);
                self.start = Some(now.saturating_sub(passed));
                self.previous = self.current;
                self.current = 0;
                passed
            }
            // The first arrival, or the windows have lost their rhythm to a pause.
            _ => {
                *self = Self {
                    start: Some(now),
                    ..Self::default()
                };
                Duration::ZERO
            }
        }
    }
}

// === impl LeakyBucket ===

impl LeakyBucket {
    fn arrive_at(&mut self, now: Duration, limit: u32, per: Duration) -> bool {
        // Thousandths of a request that drain in a second.
        let rate = REQUEST * u128::from(limit) * NANOS_PER_SECOND / per.as_nanos();
        let now = now.as_millis();
        let excess = match self.excess {
            None => 0,
            // The arrival is added before the level is cut at zero, so that it leaves an idle
            // bucket empty. The part of a thousandth that drained is lost with each arrival.
            Some(excess) => {
                let drained = rate.saturating_mul(now.saturating_sub(self.last)) / 1000;
                (excess + REQUEST).saturating_sub(drained)
            }
        };
        let accept = excess <= self.burst;
        if accept {
            self.excess = Some(excess);
            self.last = now;
        }
        accept
    }
}

/// nginx counts requests in thousandths (`ngx_http_limit_req_module.c`, "integer value, 1
/// corresponds to 0.001 r/s").
const REQUEST: u128 = 1000;

const NANOS_PER_SECOND: u128 = 1_000_000_000;
