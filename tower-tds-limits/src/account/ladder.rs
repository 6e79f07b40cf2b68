//! The ladder: which rules a limiter applies after refusals.

use std::num::NonZeroU32;

use crate::{
    clock::Tick,
    limits::{Burst, Quota, Rules},
};

/// Strictness of a limiter, which grows with refusals.
///
/// Unless evidence has misled [`Burst::Auto`](crate::Burst::Auto), a 423 has one of three causes:
/// your service keeps a stricter rule than [`Rules`](crate::Rules) names, another client uses the
/// quota, or the status has another meaning (in RFC 4918 it stands for a lock). After every 423
/// nothing is sent for a second. Three with at most fifty responses between them move the limiter
/// to the first rung that would not have sent any of the three. If no rung would have avoided them,
/// as when a lone request is refused, the limiter stays on its rung.
///
/// After ten minutes without such a move, the next response returns the limiter to the highest rung.
/// If the limiter leaves that rung before as much time has passed again, the return has failed, and
/// the next wait is twice as long, up to a day. After a return that holds, the wait is ten minutes
/// again.
///
/// Nothing tests whether a rung helps, so if another client uses your quota, the rate stays lower
/// for as long as both are busy. The same happens if your service often uses 423 for something
/// else, for example more than once in a hundred responses. In that case put
/// [`Other`](tower_tds_outcome::Outcome::Other) into the extensions of such responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Rung {
    /// Rules of [`Limits::rules`](crate::Limits::rules). This is the highest, least strict rung.
    #[default]
    Proven,
    /// Rules of [`Proven`](Self::Proven), sliding-window counters, and leaky buckets with a burst of
    /// five.
    Strict,
    /// One request at a time, spaced evenly, which is right even for leaky buckets without any
    /// burst.
    Serial,
    /// Four fifths of the quota, applied this many times, with the rules of the rung that it was
    /// reached from.
    Slowed(u8),
}

/// Permits of this limiter that were live or in the bucket when a request was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Crowd {
    /// Permits that had places in the leaky bucket.
    pub(crate) bunched: u64,
    /// Permits that were live in the window.
    pub(crate) live: u64,
}

/// Rung of a limiter.
#[derive(Debug)]
pub(crate) struct Ladder {
    step: Step,
    /// Weight of the recent refusals, each of which counts as [`REFUSED`] responses.
    evidence: u32,
    /// Smallest of each number in the crowds of the recent refusals.
    least: Crowd,
    /// Time of the last move. If a request that was granted earlier is refused, that is no
    /// evidence.
    since: Tick,
    /// When the highest rung is tried again.
    returns_at: Tick,
    /// Time from a move to the return.
    wait: u64,
    /// Time of the last return, until a move follows it.
    returned: Option<Tick>,
}

/// A rung as two numbers: the largest burst, if it is not the given one, and how much lower the rate
/// is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Step {
    burst: Option<u32>,
    slowed: u8,
}

// === impl Step ===

impl Step {
    /// Returns the first stricter rung that would not have sent a request in this crowd.
    fn stricter(self, crowd: Crowd, quota: Quota) -> Option<Self> {
        let withholds = |most: &u32| {
            self.burst.is_none_or(|burst| *most < burst) && u64::from(*most) < crowd.bunched
        };
        let burst = [SMALL_BURST, 0].into_iter().find(withholds);
        let smaller = burst.map(|burst| Self {
            burst: Some(burst),
            ..self
        });
        let withholds =
            |times: &u8| u64::from(slowed(quota, *times).requests().get()) <= crowd.live;
        let slowed = (self.slowed + 1..=SLOWEST).find(withholds);
        let slower = slowed.filter(|_| crowd.live >= FEW);
        let slower = slower.map(|slowed| Self { slowed, ..self });
        // With a small burst, a leaky bucket would have refused earlier, before so many were live.
        // So the limit of the window is the more likely cause.
        if crowd.live >= 2 * (crowd.bunched + 1) {
            slower.or(smaller)
        } else {
            smaller.or(slower)
        }
    }
}

// === impl Ladder ===

impl Ladder {
    pub(crate) fn new() -> Self {
        Self {
            step: Step::default(),
            evidence: 0,
            least: Crowd::default(),
            since: Tick::ZERO,
            returns_at: Tick::NEVER,
            wait: CLEAN,
            returned: None,
        }
    }

    pub(crate) fn rung(&self) -> Rung {
        match (self.step.slowed, self.step.burst) {
            (0, None) => Rung::Proven,
            (0, Some(0)) => Rung::Serial,
            (0, Some(_)) => Rung::Strict,
            (times, _) => Rung::Slowed(times),
        }
    }

    /// Records a refusal of a request granted at `granted` in this crowd. Returns whether the rung
    /// changed.
    pub(crate) fn refuse(&mut self, now: Tick, granted: Tick, crowd: Crowd, quota: Quota) -> bool {
        let is_old = granted <= self.since && self.since > Tick::ZERO;
        if is_old || self.step.stricter(crowd, quota).is_none() {
            return false;
        }
        if self.evidence == 0 {
            self.least = crowd;
        }
        self.evidence = (self.evidence + REFUSED).min(ENOUGH);
        self.least.bunched = self.least.bunched.min(crowd.bunched);
        self.least.live = self.least.live.min(crowd.live);
        let step = self.step.stricter(self.least, quota);
        let Some(step) = step.filter(|_| self.evidence == ENOUGH) else {
            return false;
        };
        if let Some(returned) = self.returned.take() {
            let has_failed = now.since(returned) < self.wait;
            self.wait = if has_failed {
                (self.wait * 2).min(LONGEST_CLEAN)
            } else {
                CLEAN
            };
        }
        self.go(now, step);
        self.returns_at = now.plus(self.wait);
        true
    }

    /// Records an accepted request. Returns whether the rung changed.
    #[inline]
    pub(crate) fn accept(&mut self, now: Tick) -> bool {
        self.evidence = self.evidence.saturating_sub(1);
        let returns = now >= self.returns_at;
        if returns {
            self.go(now, Step::default());
            self.returned = Some(now);
        }
        returns
    }

    fn go(&mut self, now: Tick, step: Step) {
        self.step = step;
        self.evidence = 0;
        self.since = now;
        self.returns_at = Tick::NEVER;
    }

    /// Returns the quota and rules of this rung. `quota` and `rules` are those of the highest rung.
    pub(crate) fn keeps(&self, quota: Quota, rules: Rules) -> (Quota, Rules) {
        let rules = self.step.burst.map_or(rules, |most| {
            let burst = match rules.bucket {
                Some(Burst::Of(burst)) => burst.min(most),
                Some(Burst::Auto) | None => most,
            };
            // The counter stays, because even spacing alone can exceed it by one.
            rules.counter().bucket(Burst::Of(burst))
        });
        (slowed(quota, self.step.slowed), rules)
    }
}

fn slowed(quota: Quota, times: u8) -> Quota {
    let mut requests = quota.requests().get();
    for _ in 0..times {
        requests -= requests.div_ceil(5);
    }
    let requests = NonZeroU32::new(requests).unwrap_or(NonZeroU32::MIN);
    Quota::new(requests, quota.per()).unwrap_or(quota)
}

/// Most that the rate is slowed: `0.8^16` is about a thirty-sixth.
const SLOWEST: u8 = 16;

/// With fewer live permits than this, sending fewer requests cannot help.
const FEW: u64 = 3;

/// Weight of a refusal, in accepted requests. If the limit of a service is a fiftieth lower, it
/// refuses one request in fifty, which leads to a move. One refusal in 1,000 does not.
const REFUSED: u32 = 100;

/// Reached by three refusals with at most fifty accepted requests between them.
const ENOUGH: u32 = 250;

/// Burst of the first example in nginx's documentation of `limit_req`.
const SMALL_BURST: u32 = 5;

/// Ten minutes, so a return that fails costs three refusals in 30,000 requests at the full rate.
const CLEAN: u64 = 600_000_000_000;

/// A day, in nanoseconds.
const LONGEST_CLEAN: u64 = 86_400_000_000_000;

#[cfg(test)]
mod tests;
