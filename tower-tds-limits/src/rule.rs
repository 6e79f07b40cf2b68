//! The ways of counting that a request must be safe against, one file for each.
//!
//! All of them rest on the same thought. A service counts a request at some time between its
//! grant and its proof. Put each proven request at its proof and each unproven one at now: if the
//! service would accept one more then, it accepts it whenever the others were really counted.

mod bucket;
mod counter;
mod pace;
mod window;

use std::time::Duration;

use tokio::time::Instant;

use self::{bucket::Bucket, counter::Counter, pace::Pace, window::ProofWindow};
use crate::{Quota, Rules, gate::Earliest};

/// One rule for one quota.
#[derive(Debug)]
pub(crate) enum Rule {
    Window(ProofWindow),
    Counter(Counter),
    Bucket(Bucket),
    Pace(Pace),
}

// === impl Rule ===

impl Rule {
    /// The rules that `rules` names, for one quota.
    pub(crate) fn all(quota: Quota, rules: Rules) -> Vec<Self> {
        let mut all = Vec::new();
        if rules.counter {
            // The window that begins now is the proof window: no need for both.
            all.push(Self::Counter(Counter::new(quota)));
        } else {
            all.push(Self::Window(ProofWindow::new(quota)));
        }
        if let Some(burst) = rules.bucket {
            all.push(Self::Bucket(Bucket::new(quota, burst)));
        }
        if let Some(burst) = rules.pace {
            all.push(Self::Pace(Pace::new(quota, burst)));
        }
        all
    }

    /// When one more may be granted, as far as is known at `now`.
    pub(crate) fn earliest_at(&mut self, now: Instant) -> Earliest {
        match self {
            Self::Window(window) => window.earliest_at(now),
            Self::Counter(counter) => counter.earliest_at(now),
            Self::Bucket(bucket) => bucket.earliest_at(now),
            Self::Pace(pace) => pace.earliest_at(now),
        }
    }

    pub(crate) fn grant_at(&mut self, now: Instant) {
        match self {
            Self::Window(window) => window.grant(),
            Self::Counter(counter) => counter.grant(),
            Self::Bucket(bucket) => bucket.grant(),
            Self::Pace(pace) => pace.grant_at(now),
        }
    }

    /// A granted request is proven to have been counted no later than `at`.
    pub(crate) fn prove_at(&mut self, at: Instant) {
        match self {
            Self::Window(window) => window.prove_at(at),
            Self::Counter(counter) => counter.prove_at(at),
            Self::Bucket(bucket) => bucket.prove_at(at),
            Self::Pace(_) => {}
        }
    }

    /// An answer took this long, from its request's grant to its proof.
    pub(crate) fn learn(&mut self, took: Duration) {
        if let Self::Bucket(bucket) = self {
            bucket.learn(took);
        }
    }

    /// A request that was granted was never sent.
    pub(crate) fn withdraw(&mut self) {
        match self {
            Self::Window(window) => window.withdraw(),
            Self::Counter(counter) => counter.withdraw(),
            Self::Bucket(bucket) => bucket.withdraw(),
            Self::Pace(pace) => pace.withdraw(),
        }
    }

    /// Permits live at `now`, where the rule has such.
    pub(crate) fn live_at(&mut self, now: Instant) -> usize {
        match self {
            Self::Window(window) => window.live_at(now),
            Self::Counter(counter) => counter.live_at(now),
            Self::Bucket(_) | Self::Pace(_) => 0,
        }
    }
}
