//! What a service that keeps to a rule would have refused. It knows when requests came, and
//! nothing of limiters.

use std::time::Duration;

/// A way to count fifty a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    SlidingLog,
    WeighingCounter,
    LeakyBucket,
}

/// How full a rule was at each arrival.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) rule: Rule,
    /// When, and how full: above [`Rule::limit`] it refuses.
    pub(crate) fill: Vec<(Duration, f64)>,
}

// === impl Rule ===

impl Rule {
    pub(crate) const ALL: [Self; 3] = [Self::SlidingLog, Self::WeighingCounter, Self::LeakyBucket];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SlidingLog => "sliding log",
            Self::WeighingCounter => "counter",
            Self::LeakyBucket => "leaky bucket",
        }
    }

    pub(crate) fn describes(self) -> &'static str {
        match self {
            Self::SlidingLog => "sliding log: at most 50 in the second before",
            Self::WeighingCounter => "counter: the second before, weighed, at its worst phase",
            Self::LeakyBucket => "leaky bucket: 50 a second with a burst of ten",
        }
    }

    pub(crate) fn limit(self) -> f64 {
        match self {
            Self::SlidingLog | Self::WeighingCounter => 50.0,
            Self::LeakyBucket => 11.0,
        }
    }
}

// === impl Verdict ===

impl Verdict {
    pub(crate) fn new(rule: Rule, arrivals: &[Duration]) -> Self {
        let fill = match rule {
            Rule::SlidingLog => sliding_log(arrivals),
            Rule::WeighingCounter => weighing_counter(arrivals),
            Rule::LeakyBucket => leaky_bucket(arrivals),
        };
        Self { rule, fill }
    }

    pub(crate) fn refused(&self) -> usize {
        let limit = self.rule.limit();
        let refused = self.fill.iter().filter(|(_, fill)| *fill > limit + 1e-6);
        refused.count()
    }
}

fn before(arrivals: &[Duration], at: Duration) -> f64 {
    let count = arrivals.partition_point(|arrival| *arrival < at);
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// The number of each arrival, itself counted.
fn numbered(arrivals: &[Duration]) -> impl Iterator<Item = (Duration, f64)> {
    let numbers = (1_u32..).map(f64::from);
    arrivals.iter().copied().zip(numbers)
}

fn sliding_log(arrivals: &[Duration]) -> Vec<(Duration, f64)> {
    let fill = |(at, number): (Duration, f64)| {
        let second = at.checked_sub(SECOND).unwrap_or_default();
        let older = if at < SECOND {
            0.0
        } else {
            before(arrivals, second)
        };
        (at, number - older)
    };
    numbered(arrivals).map(fill).collect()
}

/// Over every phase of its windows: they begin at an arrival, or just before a second after one.
fn weighing_counter(arrivals: &[Duration]) -> Vec<(Duration, f64)> {
    let fill = |(at, number): (Duration, f64)| {
        let recent = arrivals
            .iter()
            .flat_map(|arrival| {
                [
                    *arrival,
                    arrival.saturating_add(SECOND).saturating_sub(TINY),
                ]
            })
            .chain([at])
            .filter(|phi| *phi <= at && at < phi.saturating_add(SECOND));
        let sums = recent.map(|phi| {
            let x = at.saturating_sub(phi).as_secs_f64();
            let current = number - before(arrivals, phi);
            let earlier = match phi.checked_sub(SECOND) {
                Some(start) => before(arrivals, start),
                None => 0.0,
            };
            current + (1.0 - x) * (before(arrivals, phi) - earlier)
        });
        (at, sums.fold(0.0, f64::max))
    };
    numbered(arrivals).map(fill).collect()
}

fn leaky_bucket(arrivals: &[Duration]) -> Vec<(Duration, f64)> {
    let mut level: f64 = 0.0;
    let mut last = Duration::ZERO;
    let fill = |at: &Duration| {
        level = (level - 50.0 * at.saturating_sub(last).as_secs_f64()).max(0.0) + 1.0;
        last = *at;
        (*at, level)
    };
    arrivals.iter().map(fill).collect()
}

const SECOND: Duration = Duration::from_secs(1);

const TINY: Duration = Duration::from_nanos(1);
