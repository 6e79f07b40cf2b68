//! The ladder: which rules a limiter applies after refusals. Its rungs go down from the rules of
//! the limits to the strictest ones.

use std::num::NonZeroU32;

use crate::{Burst, Quota, Rules, clock::Tick};

/// Strictness of a limiter, which grows with refusals.
///
/// By the proof, a refusal for the rate has one of three causes. The service keeps a stricter rule
/// than [`Rules`](crate::Rules) names, another client uses the quota, or the status has another
/// meaning (423 stands for a lock in RFC 4918). Each refusal means a second of silence. Three
/// refusals with at most fifty responses between them lead to a lower, stricter rung, if that rung
/// would have withheld the refused requests. A limiter on [`Serial`](Self::Serial) also lowers its
/// rate if more than an eighth of its requests are refused.
///
/// If the rate of refusals is still a quarter or more of the rate on the rung above, the limiter
/// returns there. It does not try the same remedy (smaller bursts or a lower rate) for ten minutes,
/// then for twenty, and so on. There is one exception: if the lower rung has a lower rate of
/// requests, and less than half of the refusals remain, the rate of requests is lowered once more.
/// After ten minutes without a step the limiter climbs one rung. Each further rung takes half as
/// long, a minute at least. A step down after a climb doubles the time to the next climb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Rung {
    /// The rules of [`Limits::rules`](crate::Limits::rules). This is the highest rung.
    #[default]
    Proven,
    /// The rules of [`Proven`](Self::Proven), sliding-window counters, and leaky buckets with a
    /// burst of five.
    Strict,
    /// One request at a time, spaced evenly: right even for leaky buckets without any burst.
    Serial,
    /// Four fifths of the quota, applied this many times, with the rules of the rung that it was
    /// reached from.
    Slowed(u8),
}

/// The permits of this limiter that were live or in the bucket when a request was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crowd {
    /// The permits that had places in the leaky bucket.
    pub(crate) bunched: u64,
    /// Permits that were live in the window.
    pub(crate) live: u64,
}

/// The rung of a limiter, and the end of its silence.
#[derive(Debug)]
pub(crate) struct Ladder {
    step: Step,
    /// The step above and its rate of refusals, while the current step is on trial.
    above: Option<(Step, RefusalRate)>,
    rate: RefusalRate,
    /// Recent refusals: each counts as [`REFUSED`] responses.
    evidence: u32,
    /// The smallest numbers in the crowds of the recent refusals.
    least: Crowd,
    /// The time at which the step was taken. The refusal of an earlier grant has no effect.
    since: Tick,
    silent_until: Tick,
    climbs_at: Tick,
    /// The time from a step down to the next climb.
    clean: u64,
    /// Climbs since the last step down.
    climbed: u32,
    /// For smaller bursts and for fewer requests: when this way down may be tried again, and the
    /// delay after its next failure.
    tries: [(Tick, u64); 2],
}

/// A rung as two numbers: how small the bursts are, and how much lower the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    bursts: Bursts,
    slowed: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Bursts {
    Given,
    Small,
    None,
}

/// The rate of refusals among responses.
#[derive(Debug, Clone, Copy, Default)]
struct RefusalRate {
    refused: u32,
    answered: u32,
}

// === impl Step ===

impl Step {
    const fn rung(self) -> Rung {
        match (self.slowed, self.bursts) {
            (0, Bursts::Given) => Rung::Proven,
            (0, Bursts::Small) => Rung::Strict,
            (0, Bursts::None) => Rung::Serial,
            (times, _) => Rung::Slowed(times),
        }
    }

    /// The next rung up, or `None` on the highest.
    const fn up(self) -> Option<Self> {
        let (bursts, slowed) = match (self.bursts, self.slowed) {
            (Bursts::Given, 0) => return None,
            (Bursts::Small, 0) => (Bursts::Given, 0),
            (Bursts::None, 0) => (Bursts::Small, 0),
            (bursts, slowed) => (bursts, slowed / 2),
        };
        Some(Self { bursts, slowed })
    }

    /// The first step down with smaller bursts that would have withheld such a request.
    fn smaller_bursts(self, crowd: Crowd) -> Option<Self> {
        let next = match self.bursts {
            Bursts::Given if crowd.bunched > SMALL_BURST.into() => Bursts::Small,
            Bursts::Given | Bursts::Small if crowd.bunched > 0 => Bursts::None,
            _ => return None,
        };
        Some(Self {
            bursts: next,
            ..self
        })
    }

    /// The first step down with fewer requests that would have withheld such a request.
    fn fewer_requests(self, crowd: Crowd, quota: Quota) -> Option<Self> {
        let withholds =
            |times: &u8| u64::from(slowed(quota, *times).requests().get()) <= crowd.live;
        let slowed = (self.slowed + 1..=SLOWEST).find(withholds)?;
        (crowd.live >= FEW).then_some(Self { slowed, ..self })
    }
}

// === impl RefusalRate ===

impl RefusalRate {
    #[inline]
    const fn add(&mut self, refused: u32) {
        self.refused += refused;
        self.answered += 1;
        if self.answered >= MEMORY {
            self.answered /= 2;
            self.refused = self.refused.div_ceil(2);
        }
    }

    /// Whether more than one in eight was refused.
    const fn is_heavy(self) -> bool {
        self.refused >= 2 && 8 * self.refused > self.answered
    }

    /// Whether there are at least two refusals, and their rate is at least `1 / part` of the other
    /// rate.
    const fn is_part_of(self, other: Self, part: u32) -> bool {
        self.refused >= 2 && part * self.refused * other.answered >= other.refused * self.answered
    }
}

// === impl Ladder ===

impl Ladder {
    pub(crate) fn new() -> Self {
        Self {
            step: Step {
                bursts: Bursts::Given,
                slowed: 0,
            },
            above: None,
            rate: RefusalRate::default(),
            evidence: 0,
            least: Crowd::MOST,
            since: Tick::ZERO,
            silent_until: Tick::ZERO,
            climbs_at: Tick::ZERO.plus(CLEAN),
            clean: CLEAN,
            climbed: 0,
            tries: [(Tick::ZERO, CLEAN); 2],
        }
    }

    pub(crate) fn rung(&self) -> Rung {
        self.step.rung()
    }

    pub(crate) fn silent_until(&self) -> Tick {
        self.silent_until
    }

    /// Whether one request at a time may overlap with the one before. A chosen burst of zero
    /// forbids it, because it holds by proof.
    pub(crate) fn overlaps(&self, rules: Rules) -> bool {
        self.step.bursts == Bursts::None && rules.bucket != Some(Burst::Of(0))
    }

    /// Begins a silence of one second at `now`.
    pub(crate) fn begin_silence(&mut self, now: Tick) {
        self.silent_until = self.silent_until.max(now.plus(SILENCE));
    }

    /// Records a refusal of a request granted at `granted` in this crowd. Returns whether the rung
    /// changed.
    #[cold]
    pub(crate) fn refuse(&mut self, now: Tick, granted: Tick, crowd: Crowd, quota: Quota) -> bool {
        self.begin_silence(now);
        if granted <= self.since && self.since > Tick::ZERO {
            return false;
        }
        self.rate.add(1);
        let bursts = self.step.smaller_bursts(crowd);
        let fewer = self.step.fewer_requests(crowd, quota);
        let slower = self.step.bursts == Bursts::None && crowd.live > 0 && self.rate.is_heavy();
        if let Some((above, rate)) = self.above
            && self.rate.is_part_of(rate, 4)
            && !(self.step.bursts == Bursts::Small && bursts.is_some())
            && !slower
        {
            let fewer = fewer.filter(|_| above.slowed < self.step.slowed);
            match fewer.filter(|_| !self.rate.is_part_of(rate, 2)) {
                Some(step) => self.go(now, step),
                None => self.take_back(now, above, rate),
            }
            return true;
        }
        if bursts.is_none() && fewer.is_none() && !slower {
            // No rung would have withheld the request, so the requests of this limiter are not the
            // cause.
            return false;
        }
        self.evidence += REFUSED;
        self.least = self.least.least(crowd);
        if self.evidence < ENOUGH {
            return false;
        }
        self.evidence = ENOUGH;
        let Some(step) = self.lower(now, quota, slower) else {
            return false;
        };
        self.above.get_or_insert((self.step, self.rate));
        self.clean = if self.climbed > 0 {
            (self.clean * 2).min(LONGEST_CLEAN)
        } else {
            CLEAN
        };
        self.climbed = 0;
        self.go(now, step);
        true
    }

    /// The step down that would have withheld all recently refused requests.
    fn lower(&self, now: Tick, quota: Quota, slower: bool) -> Option<Step> {
        let [(bursts, _), (fewer, _)] = self.tries;
        let bursts = Some(bursts).filter(|at| *at <= now);
        let bursts = bursts.and_then(|_| self.step.smaller_bursts(self.least));
        let fewer = Some(fewer).filter(|at| *at <= now);
        let fewer = fewer.and_then(|_| self.step.fewer_requests(self.least, quota));
        if slower && fewer.is_none() && self.step.slowed < SLOWEST {
            let slowed = self.step.slowed + 1;
            return Some(Step {
                slowed,
                ..self.step
            });
        }
        // A leaky bucket with a small burst would have refused earlier, before so many were live.
        // So the limit of the window is the more likely cause.
        let late = self.least.live >= 2 * (self.least.bunched + 1);
        if late {
            fewer.or(bursts)
        } else {
            bursts.or(fewer)
        }
    }

    /// Returns to the rung above, because the rung on trial did not help.
    fn take_back(&mut self, now: Tick, above: Step, rate: RefusalRate) {
        let fewer = usize::from(above.slowed != self.step.slowed);
        if let Some((at, wait)) = self.tries.get_mut(fewer) {
            *at = now.plus(*wait);
            *wait = (*wait * 2).min(LONGEST_CLEAN);
        }
        self.above = None;
        self.go(now, above);
        self.rate = rate;
    }

    fn go(&mut self, now: Tick, step: Step) {
        self.step = step;
        self.rate = RefusalRate::default();
        self.evidence = 0;
        self.least = Crowd::MOST;
        self.since = now;
        self.climbs_at = now.plus(self.clean);
    }

    /// Records an accepted request. Returns whether the rung changed.
    #[inline]
    pub(crate) fn accept(&mut self, now: Tick) -> bool {
        self.evidence = self.evidence.saturating_sub(1);
        if self.evidence == 0 {
            self.least = Crowd::MOST;
        }
        self.rate.add(0);
        now >= self.climbs_at && self.climb(now)
    }

    #[cold]
    fn climb(&mut self, now: Tick) -> bool {
        let Some(step) = self.step.up() else {
            // There was no refusal in the time in which the last climb could fail.
            self.climbed = 0;
            self.climbs_at = now.plus(self.clean);
            return false;
        };
        self.climbed += 1;
        let above = self.above.take_if(|(above, _)| *above == step);
        let half = self.clean.checked_shr(self.climbed).unwrap_or_default();
        self.step = step;
        self.rate = above.map_or(RefusalRate::default(), |(_, rate)| rate);
        let wait = match step.up() {
            None => self.clean,
            Some(_) => half.max(SHORTEST_CLEAN),
        };
        self.climbs_at = now.plus(wait);
        true
    }

    /// The quota and rules of this rung. `quota` and `rules` are those of the highest rung.
    pub(crate) fn keeps(&self, quota: Quota, rules: Rules) -> (Quota, Rules) {
        let rules = match self.step.bursts {
            Bursts::Given => rules,
            Bursts::Small => {
                let burst = match rules.bucket {
                    Some(Burst::Of(burst)) => burst.min(SMALL_BURST),
                    Some(Burst::Auto) | None => SMALL_BURST,
                };
                rules.counter().bucket(Burst::Of(burst))
            }
            // The counter stays, because even spacing alone can exceed it by one.
            Bursts::None => Rules::window().counter().bucket(Burst::Of(0)),
        };
        (slowed(quota, self.step.slowed), rules)
    }
}

// === impl Crowd ===

impl Crowd {
    const MOST: Self = Self {
        bunched: u64::MAX,
        live: u64::MAX,
    };

    fn least(self, other: Self) -> Self {
        Self {
            bunched: self.bunched.min(other.bunched),
            live: self.live.min(other.live),
        }
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

/// The most that the rate is slowed: `0.8^16` is about a thirty-sixth.
const SLOWEST: u8 = 16;

/// With fewer live permits than this, fewer requests are no remedy.
const FEW: u64 = 3;

/// A refusal weighs as much as a hundred accepted requests. If the limit of a service is a fiftieth
/// lower, it refuses one request in fifty, which leads to a step. One refusal in 1,000 does not.
const REFUSED: u32 = 100;

/// Three refusals with at most fifty accepted requests between them.
const ENOUGH: u32 = 250;

/// A rate of refusals halves its counts at this many responses, so it covers at least half as many.
const MEMORY: u32 = 1024;

/// The burst of the first example in nginx's documentation of `limit_req`.
const SMALL_BURST: u32 = 5;

/// Some services count refused requests as well. They refuse a client that goes on for ever
/// (simulated: 50-74 % of its requests). After a second without requests all such windows are
/// empty.
const SILENCE: u64 = 1_002_000_000;

/// Ten minutes: a climb that fails costs three refusals in 30,000 requests at the full rate.
const CLEAN: u64 = 600_000_000_000;

/// A minute: the same three refusals in 3,000 requests.
const SHORTEST_CLEAN: u64 = 60_000_000_000;

/// A day.
const LONGEST_CLEAN: u64 = 86_400_000_000_000;

#[cfg(test)]
mod tests;
