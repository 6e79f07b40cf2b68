//! Rules of one quota: one rule for each way of counting.
//!
//! All rules rest on one argument (theorem 3 of DESIGN.md). A service counts each request between
//! its grant and its proof. Suppose that it counted as late as possible: each proven request at its
//! proof, and each unproven one now. If it would then accept one more request, it also accepts that
//! request whenever it really counted.

mod bucket;
mod counter;
mod window;

use self::{bucket::Bucket, counter::Counter, window::Window};
use crate::{
    account::reactions::Pace,
    clock::Tick,
    limits::{Burst, Quota, Rules},
};

/// All rules of one quota.
#[derive(Debug)]
pub(crate) struct QuotaRules {
    window: Window,
    counter: Option<Counter>,
    bucket: Option<Bucket>,
}

// === impl QuotaRules ===

impl QuotaRules {
    /// Creates the rules in `rules` for `quota`.
    pub(crate) fn new(quota: Quota, rules: Rules) -> Self {
        Self {
            window: Window::new(quota),
            counter: rules.counter.then(Counter::new),
            bucket: rules.bucket.map(|burst| Bucket::new(quota, burst)),
        }
    }

    /// Changes the rules from `now` on, with a pace after refusals and the `places` of a share. Past
    /// events are not replayed, so a new bucket begins full.
    pub(crate) fn keep(
        &mut self,
        quota: Quota,
        rules: Rules,
        pace: Option<Pace>,
        places: u64,
        now: Tick,
    ) {
        self.window.limit_to(quota);
        let bucket = self.bucket.take();
        let burst = rules.bucket.or(pace.map(|_| Burst::Auto));
        self.bucket = burst.map(|burst| {
            let filled = || Bucket::filled(quota, burst, now, self.window.unproven());
            let mut bucket = bucket.unwrap_or_else(filled);
            bucket.keep(quota, burst, pace, places, now);
            bucket
        });
    }

    /// Advances the rules to `now`.
    #[inline]
    pub(crate) fn advance(&mut self, now: Tick) {
        self.window.advance(now);
    }

    /// Returns the first time at which one more may be granted: [`Tick::NEVER`] while it depends on an
    /// event.
    #[inline]
    pub(crate) fn opens_at(&mut self, seen: Tick) -> Tick {
        let window = self.window.opens_at();
        if window == Tick::NEVER {
            return window;
        }
        let counter = self.counter.as_mut();
        let counter = counter.map_or(Tick::ZERO, |counter| counter.opens_at(&self.window, seen));
        let bucket = self.bucket.as_ref();
        let bucket = bucket.map_or(Tick::ZERO, |bucket| bucket.opens_at(seen));
        window.max(counter).max(bucket)
    }

    /// When a bucket allows another probe after `seen`, if no response comes. It is of use while the window has room.
    pub(crate) fn probes_at(&self, seen: Tick) -> Tick {
        let has_room = self.window.opens_at() < Tick::NEVER;
        let bucket = self.bucket.as_ref().filter(|_| has_room);
        bucket.map_or(Tick::NEVER, |bucket| bucket.probes_at(seen))
    }

    #[inline]
    pub(crate) fn grant(&mut self, now: Tick) {
        self.window.grant();
        if let Some(bucket) = &mut self.bucket {
            bucket.grant(now);
        }
    }

    /// Records the proof that a request was counted no later than `at`. Proofs come in order.
    #[inline]
    pub(crate) fn prove(&mut self, at: Tick, granted: Tick) {
        self.window.prove(at);
        if let Some(bucket) = &mut self.bucket {
            bucket.prove(at, granted);
        }
    }

    /// Uses the response at `now` to a request granted at `granted` as evidence about earlier
    /// requests.
    #[inline]
    pub(crate) fn take_evidence(&mut self, now: Tick, granted: Tick) {
        if let Some(bucket) = &mut self.bucket {
            bucket.take_evidence(now, granted);
        }
    }

    /// Takes back the grant at `granted` of a request that was never sent.
    pub(crate) fn withdraw(&mut self, granted: Tick) {
        self.window.withdraw();
        if let Some(bucket) = &mut self.bucket {
            bucket.withdraw(granted);
        }
    }

    /// Returns the smallest quota and the smallest number of places that hold all requests sent so
    /// far.
    pub(crate) fn held(&self, now: Tick) -> (u64, u64) {
        let counted = |_: &Counter| counter::largest_sum(&self.window, now);
        let counted = self.counter.as_ref().map_or(0, counted);
        let bucket = self.bucket.as_ref();
        let (rate, places) = bucket.map_or((0, 0), |bucket| bucket.held(now));
        (self.window.live().max(counted).max(rate), places)
    }

    /// Permits that were live at the last event.
    pub(crate) fn live(&self) -> u64 {
        self.window.live()
    }
}

#[cfg(test)]
mod tests;
