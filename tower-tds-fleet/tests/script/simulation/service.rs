//! The service: who is refused.

use std::time::Duration;

use fastrand::Rng;
use tds_sim::{Meter, Rule};

use super::network::spread;

/// A service that counts by several rules at once, and refuses what one of them refuses.
///
/// While none refuses, each sees just what it would see alone.
pub(super) struct Service {
    judges: Vec<Judge>,
    pub(super) arrived: u64,
    pub(super) refused: u64,
    /// The median of the time that it takes.
    pub(super) takes: Duration,
}

struct Judge {
    name: String,
    meter: Meter,
    /// How far its clock is ahead, which shifts fixed windows; a counter starts so late instead.
    phase: Duration,
    refused: u64,
    /// Whether it only looks on.
    watches: bool,
}

// === impl Service ===

impl Service {
    /// 50 in a second by every rule that the recommended rules keep within, in several phases of its windows.
    pub(super) fn strict() -> Self {
        let phases = [0, 271, 503, 757].map(Duration::from_millis);
        let windows = phases.map(|phase| Judge::new(Rule::FixedWindow, phase));
        let counters = phases.map(|phase| Judge::new(Rule::SlidingCounter, phase));
        let others = [
            Rule::SlidingLog,
            Rule::SlidingLogAll,
            Rule::LeakyBucket { burst: 10 },
        ];
        let others = others.map(|rule| Judge::new(rule, Duration::ZERO));
        let judges = windows.into_iter().chain(counters).chain(others);
        Self::of(judges.collect())
    }

    /// The same, but that the leaky bucket refuses nothing: it is only told what it would refuse.
    pub(super) fn lenient() -> Self {
        let mut service = Self::strict();
        let bucket = service.judges.last_mut().expect("several");
        bucket.watches = true;
        service
    }

    pub(super) fn by(rule: Rule) -> Self {
        Self::of(vec![Judge::new(rule, Duration::ZERO)])
    }

    fn of(judges: Vec<Judge>) -> Self {
        Self {
            judges,
            arrived: 0,
            refused: 0,
            takes: Duration::from_millis(80),
        }
    }

    /// Whether this one is accepted.
    pub(super) fn arrive(&mut self, at: Duration) -> bool {
        let mut accepted = true;
        for judge in &mut self.judges {
            if !judge.accepts(at) {
                judge.refused += 1;
                accepted &= judge.watches;
            }
        }
        self.arrived += 1;
        self.refused += u64::from(!accepted);
        accepted
    }

    pub(super) fn takes(&self, accepted: bool, rng: &mut Rng) -> Duration {
        if accepted {
            spread(self.takes, 0.5, rng)
        } else {
            Duration::from_millis(1)
        }
    }

    /// Who has refused how many, or would have.
    pub(super) fn refusals(&self) -> String {
        let refusing = self.judges.iter().filter(|judge| judge.refused > 0);
        let refusing = refusing.map(|judge| format!("{} {}", judge.name, judge.refused));
        refusing.collect::<Vec<_>>().join(", ")
    }
}

// === impl Judge ===

impl Judge {
    fn new(rule: Rule, phase: Duration) -> Self {
        Self {
            name: rule.to_string(),
            meter: rule.meter(50, Duration::from_secs(1)),
            phase,
            refused: 0,
            watches: false,
        }
    }

    fn accepts(&mut self, at: Duration) -> bool {
        if self.name == "counter" {
            return at < self.phase || self.meter.arrive(at);
        }
        self.meter.arrive(at + self.phase)
    }
}
