//! The ways of counting that a request must be safe against, one file for each.
//!
//! All of them rest on the same thought. A service counts a request at some time between its
//! grant and its proof. Put each proven request at its proof and each unproven one at now: if the
//! service would accept one more then, it accepts it whenever the others were really counted.
//!
//! None of them takes an accepted request back as time passes. So what may be granted at the time
//! the clock was last seen may be granted now, without looking at it.

mod bucket;
mod counter;
mod jitter;
mod pace;
mod window;

use self::{
    bucket::Bucket,
    counter::Counter,
    jitter::{Jitter, Spacing},
    pace::Pace,
    window::ProofWindow,
};
use crate::{Quota, Rules, clock::Tick};

/// The rules for one quota.
#[derive(Debug)]
pub(crate) struct Rule {
    window: ProofWindow,
    counter: Option<Counter>,
    bucket: Option<Bucket>,
    pace: Option<Pace>,
    /// Apart, because hardly anybody asks for it.
    jitter: Option<Box<Jitter>>,
}

// === impl Rule ===

impl Rule {
    /// What `rules` names, for `quota`.
    pub(crate) fn new(quota: Quota, rules: Rules) -> Self {
        let window = ProofWindow::new(quota);
        Self {
            counter: rules.counter.then(|| Counter::new(&window)),
            window,
            bucket: rules.bucket.map(|burst| Bucket::new(quota, burst)),
            pace: rules.pace.map(|burst| Pace::new(quota, burst)),
            jitter: rules.jitter.then(|| Box::new(Jitter::new(quota))),
        }
    }

    /// Keeps within other rules from now on, with all that is known of the past.
    pub(crate) fn keep(&mut self, quota: Quota, rules: Rules) {
        self.window.limit_to(quota);
        // It takes up the window's proofs when it is asked.
        self.counter = rules.counter.then(|| Counter::new(&self.window));
        self.bucket = rules.bucket.map(|burst| {
            let mut bucket = Bucket::new(quota, burst);
            for _ in 0..self.window.unproven() {
                bucket.grant();
            }
            for at in self.window.proofs() {
                bucket.grant();
                bucket.prove(at);
            }
            bucket.begin_carefully();
            bucket
        });
        self.pace = rules.pace.map(|burst| Pace::new(quota, burst));
        self.jitter = rules.jitter.then(|| Box::new(Jitter::new(quota)));
    }

    /// The clock was seen at `now`.
    #[inline]
    pub(crate) fn see(&mut self, now: Tick) {
        self.window.see(now);
        if let Some(pace) = &mut self.pace {
            pace.see(now);
        }
    }

    /// Whether one more may be granted, as far as the clock was seen.
    #[inline]
    pub(crate) fn is_open(&mut self, seen: Tick) -> bool {
        if self.jitter.is_some() {
            return self.opens_at(seen).is_some_and(|at| at <= seen);
        }
        // The counter's say costs most, and is worth asking for only if all the others agree.
        self.window.is_open()
            && self
                .pace
                .as_ref()
                .is_none_or(|pace| pace.opens_at() <= seen)
            && self
                .bucket
                .as_ref()
                .is_none_or(|bucket| bucket.is_open(seen))
            && self
                .counter
                .as_mut()
                .is_none_or(|counter| counter.opens_at(&self.window, seen) <= seen)
    }

    /// From when on one more may be granted, as far as the clock was seen; `None` while that
    /// depends on a proof to come.
    #[inline]
    pub(crate) fn opens_at(&mut self, seen: Tick) -> Option<Tick> {
        let spacing = self.jitter.as_ref().map(|jitter| jitter.spacing(seen));
        match spacing {
            Some(Spacing::Alone(at)) => Some(at),
            Some(Spacing::And(at)) => Some(self.proven_at(seen)?.max(at)),
            Some(Spacing::Unknown) | None => self.proven_at(seen),
        }
    }

    #[inline]
    fn proven_at(&mut self, seen: Tick) -> Option<Tick> {
        let mut opens = self.window.opens_at()?;
        if let Some(bucket) = &self.bucket {
            opens = opens.max(bucket.opens_at()?);
        }
        if let Some(pace) = &self.pace {
            opens = opens.max(pace.opens_at());
        }
        if let Some(counter) = &mut self.counter {
            opens = opens.max(counter.opens_at(&self.window, seen));
        }
        Some(opens)
    }

    #[inline]
    pub(crate) fn grant(&mut self, seen: Tick, dated: Dated) {
        self.window.grant();
        if let Some(bucket) = &mut self.bucket {
            bucket.grant();
        }
        if let Some(pace) = &mut self.pace {
            match dated {
                Dated::Seen => pace.grant(seen),
                Dated::Later => pace.grant_undated(seen),
            }
        }
        if let Some(jitter) = &mut self.jitter {
            jitter.grant(seen);
        }
    }

    /// Whether grants may be made at times that nobody looks at.
    pub(crate) fn is_undated(&self) -> bool {
        self.jitter.is_none()
    }

    /// A granted request is proven to have been counted no later than `at`, as it turns out now.
    #[inline]
    pub(crate) fn prove(&mut self, at: Tick, now: Tick) {
        // Permits that are back stay back: an older proof is one that is back in a moment.
        let hold = self.window.hold();
        let at = if at.plus(hold) <= now {
            now.minus(hold).plus(1)
        } else {
            at
        };
        if let Some(counter) = &mut self.counter {
            counter.prove(&self.window, at);
        }
        self.window.prove(at);
        if let Some(bucket) = &mut self.bucket {
            bucket.prove(at);
        }
    }

    /// An answer came at `now`, `answered` nanoseconds after its request was granted; the proof
    /// is for `took` after it.
    #[inline]
    pub(crate) fn learn(&mut self, now: Tick, took: u64, answered: u64) {
        if let Some(bucket) = &mut self.bucket {
            // A service that tells its own time leaves requests unproven until it does.
            bucket.learn(answered);
        }
        if let Some(jitter) = &mut self.jitter {
            jitter.learn(now, took);
        }
    }

    /// A request that was granted was never sent.
    pub(crate) fn withdraw(&mut self) {
        self.window.withdraw();
        if let Some(bucket) = &mut self.bucket {
            bucket.withdraw();
        }
        if let Some(pace) = &mut self.pace {
            pace.withdraw();
        }
        if let Some(jitter) = &mut self.jitter {
            jitter.withdraw();
        }
    }

    /// Permits that are live, as far as the clock was seen.
    pub(crate) fn live(&self) -> u64 {
        self.window.live()
    }

    /// The most permits that were live at any grant, the granted one among them.
    pub(crate) fn most_live(&self) -> u64 {
        self.window.most_live()
    }
}

/// When a grant was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dated {
    /// At the time at which the clock was last seen.
    Seen,
    /// After that, and nobody looked.
    Later,
}

#[cfg(test)]
mod tests;
