//! Safe against leaky buckets: a level that falls steadily and rises by one with each request.

use crate::{
    Burst, Quota,
    clock::{Tick, nanos},
};

/// A leaky bucket into which each request falls when it is proven.
///
/// A bucket's level is highest if its requests fell as late as they can have: the proven at
/// their proofs, the unproven all at now. If one more fits then, it fits.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// The time in which the level falls by one.
    interval: u64,
    burst: Burst,
    /// The burst of a bucket that holds the whole quota.
    most: u64,
    unproven: u64,
    /// When the proven requests will have drained.
    empty_at: Tick,
    /// About the median time from grant to answer, and the burst that allows for it.
    usual: u64,
    automatic: u64,
    /// Proofs to come until the burst may be as large as it likes, if it begins carefully.
    careful_for: u64,
}

// === impl Bucket ===

impl Bucket {
    pub(crate) fn new(quota: Quota, burst: Burst) -> Self {
        Self {
            interval: nanos(quota.spacing()),
            burst,
            most: u64::from(quota.requests().get()).saturating_sub(1),
            unproven: 0,
            empty_at: Tick::ZERO,
            usual: 0,
            automatic: LEAST,
            careful_for: 0,
        }
    }

    /// Begins with one request at a time, and allows larger bursts as answers come: whoever has
    /// just been refused is refused once more at the most, and not as often as a burst is large.
    pub(crate) fn begin_carefully(&mut self) {
        // What is in flight was sent before.
        self.careful_for = CAREFUL.saturating_add(self.unproven);
    }

    /// Whether one more may be granted at `now`.
    #[inline]
    pub(crate) fn is_open(&self, now: Tick) -> bool {
        self.opens_at().is_some_and(|at| at <= now)
    }

    /// From when on one more may be granted; `None` while that depends on a proof to come.
    #[inline]
    pub(crate) fn opens_at(&self) -> Option<Tick> {
        let room = self.burst().checked_sub(self.unproven)?;
        Some(self.empty_at.minus(self.interval.saturating_mul(room)))
    }

    #[inline]
    pub(crate) fn grant(&mut self) {
        self.unproven = self.unproven.saturating_add(1);
    }

    /// A request that was granted is proven to have been counted no later than `at`.
    #[inline]
    pub(crate) fn prove(&mut self, at: Tick) {
        self.unproven = self.unproven.saturating_sub(1);
        let mut drains = self.interval;
        if self.careful_for > 0 || self.burst == Burst::Of(0) {
            self.careful_for = self.careful_for.saturating_sub(1);
            let spare = if self.burst() == 0 { TICK } else { 0 };
            drains = drains.saturating_add(spare);
        }
        self.empty_at = self.empty_at.max(at).plus(drains);
    }

    /// A request that was granted was never sent.
    pub(crate) fn withdraw(&mut self) {
        self.unproven = self.unproven.saturating_sub(1);
    }

    #[inline]
    fn burst(&self) -> u64 {
        let burst = match self.burst {
            Burst::Of(burst) => u64::from(burst),
            Burst::Auto => self.automatic,
        };
        let careful = match self.careful_for {
            0 => u64::MAX,
            1..=10 => 10,
            11..=20 => 2,
            21..=30 => 1,
            31.. => 0,
        };
        burst.min(self.most).min(careful)
    }

    /// Moves the median's estimate a step towards `took`.
    #[inline]
    pub(crate) fn learn(&mut self, took: u64) {
        let step = (self.usual / STEPS).max(LEAST_STEP);
        self.usual = if took > self.usual {
            self.usual.saturating_add(step).min(took)
        } else {
            self.usual.saturating_sub(step).max(took)
        };
        let usually_unproven = self.usual.checked_div(self.interval).unwrap_or_default();
        self.automatic = usually_unproven.saturating_add(SPARE).max(LEAST);
    }
}

/// Without a burst there is no room for a gateway that reads its clock once per turn of its loop:
/// nginx at 50 a second needed 21 ms between requests, and not 20 (the study behind this crate).
const TICK: u64 = 1_000_000;

/// Ten answers for each of the bursts 0, 1, 2 and 10: full speed after a few seconds, and one or two
/// refusals for each try of a rung that is too high (the study behind this crate simulated it).
const CAREFUL: u64 = 40;

/// One less than the burst that gateways are usually configured with (nginx's own examples have 5
/// to 20, ten in the middle): by a gateway without any, nine are refused at first and one more on
/// the next rung, and ten are what one is ready to lose.
const LEAST: u64 = 9;

/// Beyond those that are usually unproven: without spare ones each grant waits for a proof.
const SPARE: u64 = 5;

/// The estimate follows a change of the median by half within about eleven requests.
const STEPS: u64 = 16;

/// So that the estimate can leave zero: 0.5 ms.
const LEAST_STEP: u64 = 500_000;

#[cfg(test)]
mod tests;
