//! Safe against leaky buckets: a level that falls steadily and rises by one with each request.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Burst, Quota, gate::Earliest};

/// A leaky bucket into which each request falls when it is proven.
///
/// A bucket's level is highest if its requests fell as late as they can have: the proven at
/// their proofs, the unproven all at now. If one more fits then, it fits.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// The time in which the level falls by one.
    interval: Duration,
    burst: Burst,
    /// The burst of a bucket that holds the whole quota.
    most: u32,
    unproven: u32,
    /// When the proven requests will have drained.
    empty_at: Option<Instant>,
    /// About the median time from grant to proof, and how many intervals that is.
    usual: Duration,
    usually_unproven: u32,
}

// === impl Bucket ===

impl Bucket {
    pub(crate) fn new(quota: Quota, burst: Burst) -> Self {
        Self {
            interval: quota.spacing(),
            burst,
            most: quota.requests().get().saturating_sub(1),
            unproven: 0,
            empty_at: None,
            usual: Duration::ZERO,
            usually_unproven: 0,
        }
    }

    pub(crate) fn earliest_at(&self, now: Instant) -> Earliest {
        let Some(room) = self.burst().checked_sub(self.unproven) else {
            return Earliest::OnReturn;
        };
        let room = self.interval.saturating_mul(room);
        match self.empty_at.and_then(|at| at.checked_sub(room)) {
            Some(at) if at > now => Earliest::At(at),
            Some(_) | None => Earliest::Now,
        }
    }

    pub(crate) fn grant(&mut self) {
        self.unproven = self.unproven.saturating_add(1);
    }

    pub(crate) fn prove_at(&mut self, at: Instant) {
        self.unproven = self.unproven.saturating_sub(1);
        let from = self.empty_at.map_or(at, |empty| empty.max(at));
        self.empty_at = from.checked_add(self.interval);
    }

    pub(crate) fn withdraw(&mut self) {
        self.unproven = self.unproven.saturating_sub(1);
    }

    fn burst(&self) -> u32 {
        let burst = match self.burst {
            Burst::Of(burst) => burst,
            Burst::Auto => self.usually_unproven.saturating_add(SPARE).max(LEAST),
        };
        burst.min(self.most)
    }

    /// Moves the median's estimate a step towards `took`.
    pub(crate) fn learn(&mut self, took: Duration) {
        let step = self.usual.checked_div(STEPS).unwrap_or_default();
        let step = step.max(LEAST_STEP);
        self.usual = if took > self.usual {
            self.usual.saturating_add(step).min(took)
        } else {
            self.usual.saturating_sub(step).max(took)
        };
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let intervals = nanos(self.usual).checked_div(nanos(self.interval));
        let intervals = u32::try_from(intervals.unwrap_or_default());
        self.usually_unproven = intervals.unwrap_or(u32::MAX);
    }
}

/// The smallest burst that gateways are configured with in practice; nginx's own examples have 5
/// to 20.
const LEAST: u32 = 10;

/// Beyond those that are usually unproven: without spare ones each grant waits for a proof.
const SPARE: u32 = 5;

/// The estimate follows a change of the median by half within about eleven requests.
const STEPS: u32 = 16;

/// So that the estimate can leave zero.
const LEAST_STEP: Duration = Duration::from_micros(500);

#[cfg(test)]
mod tests;
