//! The ladder: how careful a limiter is after what it was refused.

use std::num::NonZeroU32;

use crate::{Burst, Quota, Rules, clock::Tick};

/// A step of the ladder that a limiter climbs down when it is refused all the same.
///
/// By the proof a refusal for the rate means that the service keeps a stricter rule than
/// [`Rules`](crate::Rules) names, that somebody else uses the quota, or that the answer means
/// something else (423 stands for a lock in RFC 4918). The limiter is silent for a second. Three
/// refusals with at most fifty answers between them take it one rung down; rarer ones do not, because a stricter
/// service would refuse more often. Ten minutes without a step down take it one up again, and one
/// more each time after half as long, a minute at least: half an hour leads up all of it. If that
/// leads down, the next try comes after twice as long as the first did.
///
/// # Examples
/// ```
/// use tower_tds_limits::{Limits, Rung};
///
/// // This service is known to refuse bursts: begin carefully, and try the faster rungs later.
/// let limits = Limits::default().start_at(Rung::Serial);
/// # drop(limits);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Rung {
    /// What [`Limits::rules`](crate::Limits::rules) says. The default start.
    #[default]
    Proven,
    /// Those, sliding-window counters, and leaky buckets with a burst of ten.
    Strict,
    /// One request at a time, spaced evenly: right even for leaky buckets without any burst.
    Serial,
    /// As before, with four fifths of the quota for each time that it was refused there.
    Slowed(u8),
}

/// On which rung a limiter stands, and until when it is silent.
#[derive(Debug)]
pub(crate) struct Ladder {
    rung: Rung,
    /// What speaks for a stricter service: a refusal raises it, an accepted request lowers it.
    evidence: u32,
    /// When the last step led down. What was granted by then and is refused after it belongs to
    /// that step.
    led_down: Option<Tick>,
    silent_until: Tick,
    /// When an accepted request leads one rung up.
    climbs_at: Tick,
    /// How long after a step down.
    clean: u64,
    /// Steps up since the last one down.
    climbed: u32,
}

// === impl Rung ===

impl Rung {
    /// One rung down; there is always a slower one, up to a fortieth of the quota.
    const fn down(self) -> Self {
        match self {
            Self::Proven => Self::Strict,
            Self::Strict => Self::Serial,
            Self::Serial => Self::Slowed(1),
            Self::Slowed(times) if times < SLOWEST => Self::Slowed(times + 1),
            Self::Slowed(_) => Self::Slowed(SLOWEST),
        }
    }

    /// One rung up; `None` on the highest.
    const fn up(self) -> Option<Self> {
        match self {
            Self::Proven => None,
            Self::Strict => Some(Self::Proven),
            Self::Serial => Some(Self::Strict),
            Self::Slowed(0 | 1) => Some(Self::Serial),
            Self::Slowed(times) => Some(Self::Slowed(times - 1)),
        }
    }
}

// === impl Ladder ===

impl Ladder {
    pub(crate) fn new(start: Rung) -> Self {
        Self {
            rung: start,
            evidence: 0,
            led_down: None,
            silent_until: Tick::ZERO,
            climbs_at: Tick::ZERO.plus(CLEAN),
            clean: CLEAN,
            climbed: 0,
        }
    }

    pub(crate) fn rung(&self) -> Rung {
        self.rung
    }

    pub(crate) fn silent_until(&self) -> Tick {
        self.silent_until
    }

    /// Nothing is granted for a second from `now`.
    pub(crate) fn hush(&mut self, now: Tick) {
        self.silent_until = self.silent_until.max(now.plus(SILENCE));
    }

    /// A request that was not granted before `granted` was refused for the rate. Gives the new
    /// rung if that led down.
    pub(crate) fn refuse(&mut self, now: Tick, granted: Tick) -> Option<Rung> {
        self.hush(now);
        if self.led_down.is_some_and(|step| granted <= step) {
            return None;
        }
        self.evidence += REFUSED;
        if self.evidence < ENOUGH {
            return None;
        }
        self.clean = if self.climbed > 0 {
            (self.clean * 2).min(LONGEST_CLEAN)
        } else {
            CLEAN
        };
        self.evidence = 0;
        self.climbed = 0;
        self.led_down = Some(now);
        self.climbs_at = now.plus(self.clean);
        self.rung = self.rung.down();
        Some(self.rung)
    }

    /// A request was accepted. Gives the new rung if that led up.
    #[inline]
    pub(crate) fn accept(&mut self, now: Tick) -> Option<Rung> {
        self.evidence = self.evidence.saturating_sub(1);
        if now < self.climbs_at {
            return None;
        }
        let Some(rung) = self.rung.up() else {
            // It has held there for as long as a try may take to fail: the next refusals are about something else.
            self.climbed = 0;
            self.climbs_at = now.plus(self.clean);
            return None;
        };
        self.rung = rung;
        self.climbed += 1;
        let half = self.clean.checked_shr(self.climbed).unwrap_or_default();
        let wait = match rung {
            Rung::Proven => self.clean,
            Rung::Strict | Rung::Serial | Rung::Slowed(_) => half.max(SHORTEST_CLEAN),
        };
        self.climbs_at = now.plus(wait);
        Some(rung)
    }

    /// What is kept within on this rung, where `quota` and `rules` are the highest one's.
    pub(crate) fn keeps(&self, quota: Quota, rules: Rules) -> (Quota, Rules) {
        match self.rung {
            Rung::Proven => (quota, rules),
            Rung::Strict => (quota, strict(rules)),
            Rung::Serial => (quota, serial()),
            Rung::Slowed(times) => (slowed(quota, times), serial()),
        }
    }
}

fn strict(rules: Rules) -> Rules {
    let burst = match rules.bucket {
        Some(Burst::Of(burst)) => burst.min(STRICT_BURST),
        Some(Burst::Auto) | None => STRICT_BURST,
    };
    rules.counter().bucket(Burst::Of(burst))
}

/// The counter rule stays: of even spacing a weighing counter sees up to one more than the quota.
const fn serial() -> Rules {
    Rules::window().counter().bucket(Burst::Of(0))
}

fn slowed(quota: Quota, times: u8) -> Quota {
    let mut requests = quota.requests().get();
    for _ in 0..times {
        requests -= requests.div_ceil(5);
    }
    let requests = NonZeroU32::new(requests).unwrap_or(NonZeroU32::MIN);
    Quota::new(requests, quota.per()).unwrap_or(quota)
}

/// `0.8^16` is about a fortieth.
const SLOWEST: u8 = 16;

/// A refusal counts as much as a hundred accepted requests: a service whose limit is a fiftieth
/// below ours refuses one in fifty, and is found; one in 1,000, for whatever reason, is not.
const REFUSED: u32 = 100;

/// Three refusals with no more than fifty accepted requests between them. Of refusals that come by
/// chance, one in 1,000, that is one in 800.
const ENOUGH: u32 = 250;

/// The burst of the strict rung: what nginx's own examples are configured with.
const STRICT_BURST: u32 = 10;

/// Where the refused count too, whoever goes on is refused for ever (the study behind this crate:
/// 50-74 % of the requests); after a second without any, all such windows are empty.
const SILENCE: u64 = 1_002_000_000;

/// Ten minutes: three refused requests in 30,000 at the full rate.
const CLEAN: u64 = 600_000_000_000;

/// A minute: three in 3,000.
const SHORTEST_CLEAN: u64 = 60_000_000_000;

/// A day.
const LONGEST_CLEAN: u64 = 86_400_000_000_000;

#[cfg(test)]
mod tests;
