//! Rules by which the service may count requests, because its contract names the limit but not how
//! to count.

use std::{collections::VecDeque, str::FromStr, time::Duration};

use crate::text::ParseError;

/// Way of counting requests against a limit per interval.
///
/// Your client has to work with each of these, because the contract allows "50 parallel requests
/// per second" and leaves open what that counts. Test it with the strictest ones:
/// [`SlidingLogAll`](Self::SlidingLogAll) for bursts, [`SlidingCounter`](Self::SlidingCounter) for
/// the spacing over time, [`InFlight`](Self::InFlight) for slow answers.
///
/// As text, such as on a command line, write `fixed`, `log`, `log-all`, `counter`, `leaky:BURST` or
/// `in-flight`.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tds_sim::Rule;
///
/// let rule: Rule = "log".parse()?;
/// let mut meter = rule.meter(2, Duration::from_secs(1));
/// assert!(meter.arrive(Duration::from_millis(0)));
/// assert!(meter.arrive(Duration::from_millis(400)));
/// assert!(!meter.arrive(Duration::from_millis(999)));
/// assert!(meter.arrive(Duration::from_millis(1000))); // the first one is a second old
/// # Ok::<_, tds_sim::ParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// Each window `[k * per, (k + 1) * per)` of the simulator's clock accepts its first `limit`
    /// arrivals, whenever in the window they come.
    ///
    /// Refused requests do not count. At a boundary you can send twice the limit at once, half of
    /// it on each side. Kong's local policy counts in this way.
    FixedWindow,
    /// Accepts an arrival at `now` while fewer than `limit` were *accepted* in `(now - per, now]`.
    ///
    /// Refused requests do not count: if your client sends too fast, it still gets `limit`. An
    /// arrival leaves the window when it is exactly `per` old.
    SlidingLog,
    /// Accepts an arrival at `now` while fewer than `limit` others *arrived* in `(now - per, now]`,
    /// refused ones included.
    ///
    /// If your client sends too fast, it is refused until it slows down. An arrival leaves the
    /// window when it is exactly `per` old.
    SlidingLogAll,
    /// Refuses an arrival if the estimate `previous * (1 - x) + current` exceeds `limit`.
    ///
    /// `previous` and `current` are the arrivals in two adjoining windows, this arrival and refused
    /// ones included, and `x` is the part of the current window that has passed.
    ///
    /// Windows are `[start, start + per)`. The first arrival starts one, the next follows at its
    /// end, and an arrival `2 * per` or more after the last start begins anew, with nothing before
    /// it. HAProxy's `http_req_rate(1s) gt 50` differs only in rounding: it works in whole
    /// milliseconds and rounds the estimate down, so it refuses from 51. Here every estimate above
    /// 50 is refused, exactly.
    SlidingCounter,
    /// Refuses an arrival if the bucket, which drains at `limit` per `per`, would hold more than
    /// `burst` besides the arrival in service.
    ///
    /// So `burst + 1` requests pass at one instant, and then one for each that has drained. Refused
    /// requests do not fill the bucket. This is nginx's `limit_req` with `burst=B nodelay`,
    /// arithmetic included: a clock of whole milliseconds, levels rounded up to thousandths, and
    /// nothing added by an arrival in an idle bucket.
    LeakyBucket {
        /// Number of requests that may be in the bucket, besides the one in service.
        burst: u32,
    },
    /// Accepts an arrival at `now` while fewer than `limit` accepted requests were in flight at
    /// some instant of `(now - per, now]`.
    ///
    /// Requests are in flight from their arrival to their end, both included, so they count for
    /// `per` after their end; one that is never [ended](Meter::end) counts for ever. Refused
    /// requests are never in flight.
    InFlight,
}

/// Counts arrivals by one [`Rule`] and returns for each whether the service accepts it.
///
/// Pass the time since the simulator's start, in non-decreasing order. If it is earlier than the
/// latest one so far, it counts as the latest, because the clock of a service does not go back.
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
    /// Interval of the limit, which is not zero.
    per: Duration,
    /// Latest time seen.
    now: Duration,
    count: Count,
}

/// State of one rule.
#[derive(Debug)]
enum Count {
    /// Number of the current window, and of the arrivals that it has accepted.
    FixedWindow {
        window: u128,
        accepted: u32,
    },
    /// Accepted arrivals of the last interval.
    Log(Recent),
    /// The last `limit` arrivals at most. Older ones change no answer, and refused requests must
    /// not fill the memory.
    LogAll(Recent),
    Counter(Counter),
    LeakyBucket(LeakyBucket),
    /// Requests in progress, and the ends of others.
    InFlight {
        open: u32,
        ended: Recent,
    },
}

/// Instants in `(now - per, now]`.
#[derive(Debug, Default)]
struct Recent(VecDeque<Duration>);

/// Counts of two adjoining windows.
#[derive(Debug, Default)]
struct Counter {
    /// Start of the current window; `None` before the first arrival.
    start: Option<Duration>,
    previous: u32,
    current: u32,
}

/// nginx's `limit_req`, in its arithmetic.
#[derive(Debug)]
struct LeakyBucket {
    /// Thousandths of a request.
    burst: u128,
    /// Level in thousandths of a request; `None` before the first arrival.
    excess: Option<u128>,
    /// Time of `excess`, in milliseconds.
    last: u128,
}

// === impl Rule ===

impl Rule {
    /// Creates a meter that accepts `limit` arrivals per `per` by this rule.
    ///
    /// If `per` is zero, it counts as one nanosecond. Leaky buckets drain a whole number of
    /// thousandths of a request per second, as in nginx, so a rate below one thousandth becomes
    /// zero.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tds_sim::Rule;
    ///
    /// let mut meter = Rule::LeakyBucket { burst: 1 }.meter(50, Duration::from_secs(1));
    /// assert!(meter.arrive(Duration::ZERO));
    /// assert!(meter.arrive(Duration::ZERO)); // the burst
    /// assert!(!meter.arrive(Duration::from_millis(19)));
    /// assert!(meter.arrive(Duration::from_millis(20))); // one has drained
    /// ```
    #[must_use]
    pub fn meter(self, limit: u32, per: Duration) -> Meter {
        Meter::new(self, limit, per)
    }
}

/// # Errors
/// Returns a [`ParseError`] for any text that [`Rule`] does not list.
impl FromStr for Rule {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "fixed" => Ok(Self::FixedWindow),
            "log" => Ok(Self::SlidingLog),
            "log-all" => Ok(Self::SlidingLogAll),
            "counter" => Ok(Self::SlidingCounter),
            "in-flight" => Ok(Self::InFlight),
            _ => text
                .strip_prefix("leaky:")
                .and_then(|burst| burst.parse().ok())
                .map(|burst| Self::LeakyBucket { burst })
                .ok_or_else(|| ParseError::new("counting rule", text, RULES)),
        }
    }
}

// === impl Meter ===

impl Meter {
    fn new(rule: Rule, limit: u32, per: Duration) -> Self {
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

    /// Counts a request that arrives at `at`, and returns whether the service accepts it.
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

    /// Returns how many arrivals the fixed window of `now` has accepted; zero for other rules.
    pub(crate) fn accepted_at(&self, now: Duration) -> u32 {
        match self.count {
            Count::FixedWindow { window, accepted }
                if window == now.as_nanos() / self.per.as_nanos() =>
            {
                accepted
            }
            _ => 0,
        }
    }

    /// Records that the accepted request that arrived at `arrived` ended at `at`.
    ///
    /// Call it once for each accepted request, whatever the rule, though only [`Rule::InFlight`]
    /// counts the ends. If `at` is before `arrived`, `arrived` counts.
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
    /// Returns the number of instants in `(now - per, now]`, and drops older ones.
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

    /// Makes the window that contains `now` the current one. Returns the time since its start.
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
            // First arrival, or one that comes two intervals or more after the last start.
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
            // Adds the arrival before the level is cut at zero, so that it leaves an idle bucket
            // empty. With each arrival, the part of a thousandth that drained is lost.
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

const RULES: &str = "fixed, log, log-all, counter, leaky:BURST (such as leaky:10) or in-flight";

/// nginx counts requests in thousandths (`ngx_http_limit_req_module.c`, "integer value, 1
/// corresponds to 0.001 r/s").
const REQUEST: u128 = 1000;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests;
