//! What a refusal for the rate teaches.

use std::num::NonZeroU32;

use crate::{Burst, Quota, Rules, Rung, clock::Tick};

/// On which rung a limiter stands, and until when it is silent.
#[derive(Debug)]
pub(crate) struct Ladder {
    rung: Rung,
    /// The highest that it climbs to.
    highest: Rung,
    /// When the last refusal led down. What was granted by then and is refused after it belongs
    /// to it.
    led_down: Option<Tick>,
    silent_until: Tick,
    /// When a clean answer leads one rung up.
    climbs_at: Tick,
    /// For how long there must be no refusal before that.
    clean: u64,
    /// Whether the last step led up.
    climbed: bool,
}

// === impl Ladder ===

impl Ladder {
    pub(crate) fn new(start: Rung) -> Self {
        Self {
            rung: start,
            // Nobody is led beyond what is proven who has not begun there.
            highest: start.min(Rung::Proven),
            led_down: None,
            silent_until: Tick::ZERO,
            climbs_at: Tick::ZERO.plus(CLEAN),
            clean: CLEAN,
            climbed: false,
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
        // Silence follows a step, so that nothing is granted when it is made, nor soon after.
        self.hush(now);
        let news = self.led_down.is_none_or(|step| granted > step);
        if news {
            self.clean = if self.climbed {
                self.clean.saturating_mul(2).min(LONGEST_CLEAN)
            } else {
                CLEAN
            };
            self.climbed = false;
            self.led_down = Some(now);
            self.rung = self.rung.down();
        }
        self.climbs_at = now.plus(self.clean);
        news.then_some(self.rung)
    }

    /// A request was accepted. Gives the new rung if that led up.
    #[inline]
    pub(crate) fn accept(&mut self, now: Tick) -> Option<Rung> {
        if now < self.climbs_at {
            return None;
        }
        self.climbs_at = now.plus(self.clean);
        self.rung = self.rung.up().filter(|up| *up >= self.highest)?;
        self.climbed = true;
        Some(self.rung)
    }

    /// What is kept within on this rung, where `quota` and `rules` are the highest one's.
    pub(crate) fn keeps(&self, quota: Quota, rules: Rules) -> (Quota, Rules) {
        match self.rung {
            Rung::Paced => (quota, rules.jitter()),
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
        requests = requests.saturating_sub(requests.div_ceil(5));
    }
    let requests = NonZeroU32::new(requests).unwrap_or(NonZeroU32::MIN);
    Quota::new(requests, quota.per()).unwrap_or(quota)
}

/// The burst of the strict rung: what nginx's own examples are configured with.
const STRICT_BURST: u32 = 10;

/// Where the refused count too, whoever goes on is refused for ever (the study behind this crate:
/// 50-74 % of the requests); after a second without any, all such windows are empty.
const SILENCE: u64 = 1_002_000_000;

/// Ten minutes: one refused request in 30,000 at the full rate.
const CLEAN: u64 = 600_000_000_000;

/// A day.
const LONGEST_CLEAN: u64 = 86_400_000_000_000;

#[cfg(test)]
mod tests;
