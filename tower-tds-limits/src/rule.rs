//! One quota, and the ways of counting that requests are to be safe against.
//!
//! All of them rest on the same thought. A service counts a request at some time between its
//! grant and its proof. Put each proven request at its proof and each unproven one at now: if the
//! service would accept one more then, it accepts it whenever the others were really counted.

mod bucket;
mod counter;
mod pace;
mod window;

use self::{bucket::Bucket, counter::Counter, pace::Pace, window::Window};
use crate::{Quota, Rules, WaitCause, clock::Tick};

/// The rules for one quota.
#[derive(Debug)]
pub(crate) struct Rule {
    window: Window,
    counter: Option<Counter>,
    bucket: Option<Bucket>,
    pace: Option<Pace>,
}

// === impl Rule ===

impl Rule {
    /// What `rules` names, for `quota`.
    pub(crate) fn new(quota: Quota, rules: Rules) -> Self {
        Self {
            window: Window::new(quota),
            counter: rules.counter.then(Counter::new),
            bucket: rules.bucket.map(|burst| Bucket::new(quota, burst)),
            pace: rules.pace.map(|burst| Pace::new(quota, burst)),
        }
    }

    /// Keeps within other rules from now on, with all that is known of the past.
    pub(crate) fn keep(&mut self, quota: Quota, rules: Rules) {
        self.window.limit_to(quota);
        // What it knows is of the proofs alone, and not of the number.
        let counter = self.counter.take();
        self.counter = rules.counter.then(|| counter.unwrap_or_else(Counter::new));
        self.bucket = rules.bucket.map(|burst| {
            let mut bucket = Bucket::new(quota, burst);
            for _ in 0..self.window.unproven() {
                bucket.grant();
            }
            let mut before = self.window.forgotten();
            for run in self.window.runs() {
                for _ in before..run.until {
                    bucket.grant();
                    bucket.prove(run.at, Tick::ZERO);
                }
                before = run.until;
            }
            bucket.begin_carefully();
            bucket
        });
        self.pace = rules.pace.map(|burst| Pace::new(quota, burst));
    }

    /// Begins as if the whole quota had been used up at the beginning.
    pub(crate) fn drain(&mut self) {
        self.window.drain();
        if let Some(bucket) = &mut self.bucket {
            bucket.drain();
        }
    }

    /// The clock was seen at `now`.
    #[inline]
    pub(crate) fn see(&mut self, now: Tick) {
        self.window.see(now);
        if let Some(bucket) = &mut self.bucket {
            bucket.see(now);
        }
    }

    /// Whether one more may be granted, as far as the clock was seen.
    #[inline]
    pub(crate) fn is_open(&mut self, seen: Tick) -> bool {
        let (pace, bucket) = (self.pace.as_ref(), self.bucket.as_ref());
        // The counter's say costs most, and is worth asking for only if all the others agree.
        self.window.is_open()
            && pace.is_none_or(|pace| pace.opens_at() <= seen)
            && bucket.is_none_or(|bucket| bucket.is_open(seen))
            && self.counter_opens_at(seen) <= seen
    }

    #[inline]
    fn counter_opens_at(&mut self, seen: Tick) -> Tick {
        let window = &self.window;
        let counter = self.counter.as_mut();
        counter.map_or(Tick::ZERO, |counter| counter.opens_at(window, seen))
    }

    /// From when on one more may be granted, as far as the clock was seen, and what decides that.
    #[cold]
    pub(crate) fn opens_at(&mut self, seen: Tick) -> (Option<Tick>, WaitCause) {
        let window = (self.window.opens_at(), WaitCause::Window);
        if window.0.is_none() {
            return window;
        }
        let counter = (Some(self.counter_opens_at(seen)), WaitCause::Counter);
        let pace = self.pace.as_ref().map_or(Tick::ZERO, Pace::opens_at);
        let bucket = self.bucket.as_ref();
        let bucket = bucket.map_or(Some(Tick::ZERO), Bucket::opens_at);
        let spaced = later((Some(pace), WaitCause::Bucket), (bucket, WaitCause::Bucket));
        later(later(window, counter), spaced)
    }

    /// When an unproven request may be old enough that a bucket counts it no more.
    pub(crate) fn ages_at(&self) -> Tick {
        self.bucket.as_ref().map_or(Tick::NEVER, Bucket::ages_at)
    }

    #[inline]
    pub(crate) fn grant(&mut self, now: Tick) {
        self.window.grant();
        if let Some(bucket) = &mut self.bucket {
            bucket.grant();
        }
        if let Some(pace) = &mut self.pace {
            pace.grant(now);
        }
    }

    /// A granted request is proven to have been counted no later than `at`, which is not before any earlier proof.
    #[inline]
    pub(crate) fn prove(&mut self, at: Tick, granted: Tick) {
        self.window.prove(at);
        if let Some(bucket) = &mut self.bucket {
            bucket.prove(at, granted);
        }
    }

    /// A request that was granted at `granted` was answered, so many nanoseconds later.
    #[inline]
    pub(crate) fn answered(&mut self, granted: Tick, took: u64) {
        if let Some(bucket) = &mut self.bucket {
            bucket.answered(granted);
            bucket.learn(took);
        }
    }

    /// A request that was granted at `granted` was never sent.
    pub(crate) fn withdraw(&mut self, granted: Tick) {
        self.window.withdraw();
        if let Some(bucket) = &mut self.bucket {
            bucket.withdraw(granted);
        }
        if let Some(pace) = &mut self.pace {
            pace.withdraw();
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

/// Of two, the one that opens later; what nobody knows is later than all.
pub(crate) fn later(
    one: (Option<Tick>, WaitCause),
    other: (Option<Tick>, WaitCause),
) -> (Option<Tick>, WaitCause) {
    match (one.0, other.0) {
        (None, _) => one,
        (_, None) => other,
        (Some(at), Some(others)) if others > at => other,
        (Some(_), Some(_)) => one,
    }
}

#[cfg(test)]
mod tests;
