//! Seeded delays for scripted faults: a distribution is data, a sample is arithmetic.

#![warn(clippy::arithmetic_side_effects, clippy::as_conversions)]

use std::{f64::consts::TAU, str::FromStr, time::Duration};

use fastrand::Rng;

use crate::text::{ParseError, parse_duration};

/// Distribution of delays, from which each event gets a sample.
///
/// Write it as text, such as on a command line, in one of the forms `none`, `20ms`,
/// `uniform:0ms:50ms`, `lognormal:10ms:200ms`, `pareto:5ms:1.5` and `stall:5s:300ms`; see
/// [`parse_duration`](crate::parse_duration) for the durations.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tds_sim::Delay;
///
/// let stall: Delay = "stall:5s:300ms".parse()?;
/// let mut rng = fastrand::Rng::with_seed(7);
/// let at = Duration::from_millis(4_900);
/// assert_eq!(stall.sample(at, &mut rng), Duration::from_millis(100)); // until 5 s
/// assert_eq!(stall.sample(Duration::from_secs(5), &mut rng), Duration::ZERO);
/// # Ok::<_, tds_sim::ParseError>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub enum Delay {
    /// There is no delay.
    #[default]
    None,
    /// The same delay each time.
    Constant(Duration),
    /// Uniformly distributed between two bounds.
    Uniform {
        /// Shortest delay.
        min: Duration,
        /// Longest delay. A value below `min` counts as `min`.
        max: Duration,
    },
    /// Lognormal, as in networks and services: most delays are near the median, and a few are many
    /// times as long, up to a minute.
    LogNormal {
        /// Half of the delays are below it. Zero makes every delay zero.
        median: Duration,
        /// 99 in 100 delays are below it. A value below `median` counts as `median`.
        p99: Duration,
    },
    /// Pareto, with a heavy tail: one delay in `k.powf(alpha)` exceeds `k * min`. None is longer
    /// than a minute.
    Pareto {
        /// Shortest delay.
        min: Duration,
        /// Exponent of the tail. Without the cap, the variance would be infinite for 2 and less,
        /// and the mean for 1 and less. With zero or less, every delay is the longest one.
        alpha: f64,
    },
    /// Nothing passes during the last `length` of each period of length `every`. The delayed events
    /// come together at the end of the period.
    ///
    /// Events at `at` in the stall `[k * every - length, k * every)` are delayed until `k * every`,
    /// others not at all.
    Stall {
        /// Time from the end of a stall to the end of the next; zero makes no stalls.
        every: Duration,
        /// How long a stall lasts. If that is `every` or longer, each stall begins when the one
        /// before ends.
        length: Duration,
    },
}

// === impl Delay ===

impl Delay {
    /// Longest delay of the unbounded distributions, longer than most timeouts of clients.
    pub(crate) const LONGEST: Duration = Duration::from_secs(60);

    /// Returns the delay of an event at `at`, a time since the simulator's start.
    ///
    /// One seed gives one sequence of delays, whatever the times are. Only [`Stall`](Self::Stall)
    /// depends on the time, and it does not use the generator.
    pub fn sample(&self, at: Duration, rng: &mut Rng) -> Duration {
        match *self {
            Self::None => Duration::ZERO,
            Self::Constant(delay) => delay,
            Self::Uniform { min, max } => uniform(min, max, rng),
            Self::LogNormal { median, p99 } => log_normal(median, p99, rng),
            Self::Pareto { min, alpha } => pareto(min, alpha, rng),
            Self::Stall { every, length } => stall_at(at, every, length),
        }
    }
}

/// # Errors
/// Returns a [`ParseError`], whose message has the expected form, for a form that [`Delay`] does not
/// list and for impossible numbers.
impl FromStr for Delay {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (form, values) = text.split_once(':').unwrap_or((text, ""));
        let (delay, wanted) = match form {
            "uniform" => (
                ordered(values).map(|(min, max)| Self::Uniform { min, max }),
                "uniform:MIN:MAX, such as uniform:0ms:50ms, MIN at most MAX",
            ),
            "lognormal" => (
                ordered(values)
                    .filter(|(median, _)| !median.is_zero())
                    .map(|(median, p99)| Self::LogNormal { median, p99 }),
                "lognormal:MEDIAN:P99, such as lognormal:10ms:200ms, MEDIAN above 0 and at most P99",
            ),
            "pareto" => (
                pareto_of(values),
                "pareto:MIN:ALPHA, such as pareto:5ms:1.5, ALPHA above 0",
            ),
            "stall" => (
                stall_of(values),
                "stall:EVERY:LENGTH, such as stall:5s:300ms, EVERY above 0 and at least LENGTH",
            ),
            _ if text == "none" => (Some(Self::None), DELAYS),
            _ => (parse_duration(text).ok().map(Self::Constant), DELAYS),
        };
        delay.ok_or_else(|| ParseError::new("delay", text, wanted))
    }
}

/// Parses two durations. The first may not be above the second.
fn ordered(values: &str) -> Option<(Duration, Duration)> {
    let (less, more) = values.split_once(':')?;
    let (less, more) = (parse_duration(less).ok()?, parse_duration(more).ok()?);
    (less <= more).then_some((less, more))
}

fn pareto_of(values: &str) -> Option<Delay> {
    let (min, alpha) = values.split_once(':')?;
    let (min, alpha) = (parse_duration(min).ok()?, alpha.parse::<f64>().ok()?);
    (alpha.is_finite() && alpha > 0.0).then_some(Delay::Pareto { min, alpha })
}

fn stall_of(values: &str) -> Option<Delay> {
    let (every, length) = values.split_once(':')?;
    let (every, length) = (parse_duration(every).ok()?, parse_duration(length).ok()?);
    (length <= every && !every.is_zero()).then_some(Delay::Stall { every, length })
}

fn uniform(min: Duration, max: Duration, rng: &mut Rng) -> Duration {
    let width = max.saturating_sub(min).as_nanos();
    let above = rng.u64(..=u64::try_from(width).unwrap_or(u64::MAX));
    min.saturating_add(Duration::from_nanos(above))
}

fn log_normal(median: Duration, p99: Duration, rng: &mut Rng) -> Duration {
    let normal = standard_normal(rng);
    if median.is_zero() {
        return Duration::ZERO; // The logarithm below would be infinite.
    }
    let spread = (p99.max(median).div_duration_f64(median)).ln() / Z99;
    capped(median.as_secs_f64() * (spread * normal).exp())
}

fn pareto(min: Duration, alpha: f64, rng: &mut Rng) -> Duration {
    let share = unit(rng);
    if alpha > 0.0 {
        capped(min.as_secs_f64() * share.powf(-1.0 / alpha))
    } else {
        Delay::LONGEST // Also for NaN.
    }
}

fn stall_at(at: Duration, every: Duration, length: Duration) -> Duration {
    let every = every.as_nanos();
    at.as_nanos()
        .checked_rem(every)
        .map(|passed| every.saturating_sub(passed))
        .filter(|left| *left <= length.as_nanos())
        .map_or(Duration::ZERO, |left| {
            Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
        })
}

/// Returns a normal deviate of mean 0 and variance 1, by Box and Muller. The second deviate of the
/// pair is discarded, so that a sample depends only on the generator.
fn standard_normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * unit(rng).ln()).sqrt();
    radius * (TAU * rng.f64()).cos()
}

/// Returns a number in `(0, 1]`, which has a logarithm.
fn unit(rng: &mut Rng) -> f64 {
    1.0 - rng.f64()
}

fn capped(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds)
        .unwrap_or(Delay::LONGEST)
        .min(Delay::LONGEST)
}

const DELAYS: &str = "none, 20ms, uniform:MIN:MAX, lognormal:MEDIAN:P99, pareto:MIN:ALPHA or \
     stall:EVERY:LENGTH";

/// 99th percentile of the standard normal distribution (any table of it).
const Z99: f64 = 2.326_347_874_040_841;

#[cfg(test)]
mod tests;
