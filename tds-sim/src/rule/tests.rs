use std::time::Duration;

use super::{Meter, Rule};

mod examples;
mod models;
mod properties;

const SECOND: Duration = Duration::from_secs(1);
const INSTANT: Duration = Duration::from_nanos(1);

const ALL: [Rule; 7] = [
    Rule::FixedWindow,
    Rule::SlidingLog,
    Rule::SlidingLogAll,
    Rule::SlidingCounter,
    Rule::LeakyBucket { burst: 0 },
    Rule::LeakyBucket { burst: 10 },
    Rule::InFlight,
];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// How many of `n` arrivals at the same instant are accepted.
fn accepted_of(n: usize, meter: &mut Meter, at: Duration) -> usize {
    (0..n).filter(|_| meter.arrive(at)).count()
}

/// The verdicts on `arrivals`; nothing ends.
fn verdicts(rule: Rule, limit: u32, arrivals: &[Duration]) -> Vec<bool> {
    let mut meter = rule.meter(limit, SECOND);
    arrivals.iter().map(|at| meter.arrive(*at)).collect()
}
