//! Rules by which a service counts requests: one out of several, since its contract names the limit
//! and not the counting.

use std::{fmt, str::FromStr, time::Duration};

use crate::text::ParseError;

mod meter;

pub use self::meter::Meter;

/// A way of counting requests against a limit of so many per interval.
///
/// The contract allows "50 parallel requests per second" and leaves open what that counts, so a
/// client has to work with each of these. Pick the strictest one it claims to satisfy:
/// [`SlidingLogAll`](Self::SlidingLogAll) is the hard judge of bursts,
/// [`SlidingCounter`](Self::SlidingCounter) of rhythm, [`InFlight`](Self::InFlight) of slow
/// answers.
///
/// Written as text, on a command line, a rule is one of `fixed`, `log`, `log-all`, `counter`,
/// `leaky:BURST` and `in-flight`.
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
    /// The refused leave no trace. Twice the limit can pass within an instant, half of it on
    /// either side of a boundary. Kong's local policy counts so.
    FixedWindow,
    /// An arrival at `now` is accepted while fewer than `limit` were *accepted* in
    /// `(now - per, now]`.
    ///
    /// The refused leave no trace: a client that hammers still gets its share. An arrival exactly
    /// `per` old has left the window.
    SlidingLog,
    /// An arrival at `now` is accepted while fewer than `limit` others *arrived* in
    /// `(now - per, now]`, refused ones included.
    ///
    /// A client that hammers locks itself out until it slows down. An arrival exactly `per` old
    /// has left the window.
    SlidingLogAll,
    /// An arrival is refused if the estimate `previous * (1 - x) + current` exceeds `limit`, this
    /// arrival and all refused ones counted, where `x` is how much of the current window has
    /// passed.
    ///
    /// The windows are `[start, start + per)`. The first arrival starts one, the next follows at
    /// its end, and an arrival `2 * per` or more after the last start begins anew, with nothing
    /// before it. So it is in HAProxy's `http_req_rate(1s) gt 50`, but for the rounding: HAProxy
    /// works in whole milliseconds and rounds the estimate down, so it refuses from 51, while this
    /// one is exact and refuses from 50 and a fraction.
    SlidingCounter,
    /// An arrival is refused if the bucket, which drains at `limit` per `per`, would hold more
    /// than `burst` beside the arrival in service.
    ///
    /// So `burst + 1` pass at one instant and afterwards one for each drop that has drained. The
    /// refused do not fill the bucket. This is nginx's `limit_req` with `burst=B nodelay`,
    /// arithmetic included: a clock of whole milliseconds, levels in whole thousandths rounded
    /// up, and an arrival in an idle bucket that leaves it empty.
    LeakyBucket {
        /// How many may be ahead of the drain, beside the one in service.
        burst: u32,
    },
    /// An arrival at `now` is accepted while fewer than `limit` accepted requests were in flight
    /// at some instant of `(now - per, now]`.
    ///
    /// A request is in flight from its arrival to its end, both included, so it counts until it
    /// ended `per` ago; one that is never [ended](Meter::end) counts for ever. The refused were
    /// never in flight.
    InFlight,
}

// === impl Rule ===

impl Rule {
    /// A meter that accepts `limit` arrivals per `per` by this rule, and has seen none.
    ///
    /// A `per` of zero is read as one nanosecond. A leaky bucket's drain is a whole number of
    /// thousandths per second, as nginx keeps it, so less than one drop in a thousand seconds is
    /// none.
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
/// [`ParseError`] for any other text than those that [`Rule`] lists: write one of them.
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

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FixedWindow => f.write_str("fixed"),
            Self::SlidingLog => f.write_str("log"),
            Self::SlidingLogAll => f.write_str("log-all"),
            Self::SlidingCounter => f.write_str("counter"),
            Self::LeakyBucket { burst } => write!(f, "leaky:{burst}"),
            Self::InFlight => f.write_str("in-flight"),
        }
    }
}

const RULES: &str = "fixed, log, log-all, counter, leaky:BURST (such as leaky:10) or in-flight";

#[cfg(test)]
mod tests;
