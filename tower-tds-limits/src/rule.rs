//! Rules of one quota: one rule for each way of counting.
//!
//! All rules rest on one argument (theorem 3 of DESIGN.md). A service counts each request between
//! its grant and its proof. Suppose that it counted as late as possible: each proven request at its
//! proof, and each unproven one now. If it would then accept one more request, it also accepts that
//! request whenever it really counted.

mod bucket;
mod window;

pub(crate) use self::bucket::{Pace, TICK};
use self::{bucket::Bucket, window::Window};
use crate::{
    clock::Tick,
    limits::{Burst, Quota, Rules},
};

/// All rules of one quota.
#[derive(Debug)]
pub(crate) struct QuotaRules {
    window: Window,
    /// Whether the sums of counters have to fit.
    counter: bool,
    bucket: Option<Bucket>,
}

// === impl QuotaRules ===

impl QuotaRules {
    /// Creates the rules in `rules` for `quota`.
    pub(crate) fn new(quota: Quota, rules: Rules) -> Self {
        Self {
            window: Window::new(quota),
            counter: rules.counter,
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
            let filled = || Bucket::filled(quota, burst, now);
            let mut bucket = bucket.unwrap_or_else(filled);
            bucket.keep(quota, burst, pace, places, now);
            bucket
        });
    }

    /// Returns the first time at which one more may be granted: [`Tick::NEVER`] while it depends on an
    /// event.
    #[inline]
    pub(crate) fn opens_at(&self, now: Tick) -> Tick {
        let mut opens = self.window.opens_at();
        if opens == Tick::NEVER {
            return opens;
        }
        if self.counter {
            opens = opens.max(self.window.counter_opens_at(now));
        }
        let Some(bucket) = &self.bucket else {
            return opens;
        };
        opens.max(bucket.opens_at(now, self.window.unproven()))
    }

    #[inline]
    pub(crate) fn grant(&mut self, now: Tick) {
        self.window.grant();
        if let Some(bucket) = &mut self.bucket {
            bucket.grant(now);
        }
    }

    /// Records the proof that a request was counted no later than `at`. Proofs come in order. If it
    /// `is_evidence`, it is a response, which says something about earlier requests as well.
    #[inline]
    pub(crate) fn prove(&mut self, at: Tick, granted: Tick, is_evidence: bool) {
        self.window.prove(at);
        if let Some(bucket) = &mut self.bucket {
            bucket.prove(at, granted);
            if is_evidence {
                bucket.take_evidence(at, granted);
            }
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
        let mut requests = self.window.live(now);
        if self.counter {
            requests = requests.max(self.window.largest_sum(now));
        }
        let bucket = self.bucket.as_ref();
        let (rate, places) = bucket.map_or((0, 0), |bucket| bucket.held(now));
        (requests.max(rate), places)
    }

    /// Permits that are live at `now`.
    pub(crate) fn live(&self, now: Tick) -> u64 {
        self.window.live(now)
    }
}

#[cfg(test)]
mod tests;
