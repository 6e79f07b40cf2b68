//! Safety against leaky buckets: a level that falls steadily and rises by one with each request.

use std::collections::VecDeque;

use crate::{
    clock::{Tick, nanos},
    limits::{Burst, Quota},
};

/// Leaky bucket. Requests *fall* into it (raise its level by one) when they are proven.
///
/// Its level is highest if each request fell as late as possible: a proven one at its proof, an unproven
/// one now. If one more request fits at that level, it fits whenever the service really counts.
///
/// With an automatic burst, evidence counts too. A response shows that the network works, so the
/// requests granted a [`MARGIN`] before it have been counted, and fall at that response.
/// Time alone is no evidence: until a response comes, all requests since the last one keep their places.
/// One more request may be sent as a probe, because a bucket of ten takes eleven. If the probe is
/// answered, the network works and only the earlier calls are slow.
///
/// A share bounds the places of both kinds of burst, probes included. Under an automatic burst, the
/// last place is taken [later](Bucket::spreads_at) than the others, so that responses do not all come
/// together.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Time in which the level falls by one.
    interval: u64,
    burst: Burst,
    /// Its requests, without probes.
    beside: u64,
    /// Burst of a bucket that holds the whole quota.
    most: u64,
    /// Places that the share or the pace allows, if there is one.
    places: u64,
    /// Least time between two grants, under a pace.
    gap: u64,
    /// Time of the last grant.
    last: Tick,
    /// When all fallen requests will have drained.
    empty_at: Tick,
    /// Unproven requests, without evidence that they were counted if that is what the burst rests on, in the order
    /// of their grants.
    unseen: VecDeque<Tick>,
    /// Shortest response time of late, which each response forgets by a [part](FORGETS).
    shortest: u64,
}

/// Even spacing of requests, after a 423.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Least time between two grants.
    pub(crate) gap: u64,
    /// Requests without evidence that they were counted.
    pub(crate) places: u32,
}

// === impl Bucket ===

impl Bucket {
    pub(crate) fn new(quota: Quota, burst: Burst) -> Self {
        Self {
            interval: nanos(quota.spacing()),
            burst,
            beside: burst.beside(quota).into(),
            most: u64::from(quota.requests().get()) - 1,
            places: u64::MAX,
            gap: 0,
            last: Tick::ZERO,
            empty_at: Tick::ZERO,
            unseen: VecDeque::new(),
            shortest: u64::MAX,
        }
    }

    /// Creates a bucket of unknown level, which counts as full.
    pub(crate) fn filled(quota: Quota, burst: Burst, now: Tick) -> Self {
        let mut bucket = Self::new(quota, burst);
        bucket.empty_at = now.plus(bucket.interval.saturating_mul(bucket.most + 1));
        bucket
    }

    /// Changes the rate, the burst and the places. The level stays the same number of requests.
    pub(crate) fn keep(
        &mut self,
        quota: Quota,
        burst: Burst,
        pace: Option<Pace>,
        places: u64,
        now: Tick,
    ) {
        let interval = nanos(quota.spacing());
        let drains = u128::from(self.empty_at.since(now)) * u128::from(interval);
        let drains = drains.div_ceil(self.interval.into());
        self.empty_at = now.plus(u64::try_from(drains).unwrap_or(u64::MAX));
        self.interval = interval;
        self.burst = burst;
        self.beside = burst.beside(quota).into();
        self.most = u64::from(quota.requests().get()) - 1;
        self.places = pace.map_or(places, |pace| places.min(pace.places.into()));
        self.gap = pace.map_or(0, |pace| pace.gap);
    }

    /// Returns the first time at which one more may be granted, or, under an automatic burst, one more
    /// probe without a response: [`Tick::NEVER`] while that depends on a response. Of its requests so many
    /// are `unproven`.
    #[inline]
    pub(crate) fn opens_at(&self, now: Tick, unproven: u64) -> Tick {
        let oldest = self.unseen.front().filter(|_| self.burst == Burst::Auto);
        let (probes, next) = oldest.map_or((0, Tick::NEVER), |oldest| {
            let (probes, age) = probed(now.since(*oldest));
            (probes, oldest.plus(age))
        });
        let most = self.most.min(self.places.saturating_sub(1));
        let Some(room) = (self.beside + probes).min(most).checked_sub(self.taken()) else {
            return next;
        };
        let drained = |room| self.empty_at.minus(self.interval.saturating_mul(room));
        let opens_at = drained(room).max(self.last.plus(self.gap));
        // If one more would fit, this request does not take the last place.
        let roomy = room.checked_sub(1).map_or(Tick::NEVER, drained);
        let spread = self.spreads_at(unproven).unwrap_or_default();
        opens_at.max(spread.min(roomy))
    }

    /// When the last place of a share may be taken, under an automatic burst.
    ///
    /// Responses that come together prove their own requests, and are evidence about no other. If all
    /// places were taken together, that would go on: one round of places for each response time.
    fn spreads_at(&self, unproven: u64) -> Option<Tick> {
        let is_share = self.burst == Burst::Auto && self.places <= self.most;
        let last = self.unseen.back().filter(|_| is_share)?;
        let apart = self.shortest / (unproven + 1);
        (self.shortest < u64::MAX).then(|| last.plus(apart.min(LONG)))
    }

    #[inline]
    pub(crate) fn grant(&mut self, now: Tick) {
        self.last = now;
        self.unseen.push_back(now);
    }

    /// Records the proof that a request granted at `granted` was counted no later than `at`.
    #[inline]
    pub(crate) fn prove(&mut self, at: Tick, granted: Tick) {
        if self.withdraw(granted) {
            self.fall(at);
        }
    }

    /// Takes the response at `now` to a request granted at `granted` as evidence about earlier ones.
    #[inline]
    pub(crate) fn take_evidence(&mut self, now: Tick, granted: Tick) {
        let shortest = self.shortest.saturating_add(self.shortest / FORGETS);
        self.shortest = shortest.min(now.since(granted));
        let before = now.minus(MARGIN);
        while self.burst == Burst::Auto
            && self.unseen.front().is_some_and(|oldest| *oldest <= before)
        {
            self.unseen.pop_front();
            self.fall(now);
        }
    }

    /// Returns the smallest quota with which the bucket drains, and the smallest number of places
    /// that hold all its requests: those that have not fallen, and those that have not drained.
    /// Evidence counts as it does at a grant.
    pub(crate) fn held(&self, now: Tick) -> (u64, u64) {
        let level = self.level(now);
        (level.min(1), self.taken() + level)
    }

    /// Returns the requests that have fallen and not drained.
    #[inline]
    fn level(&self, now: Tick) -> u64 {
        self.empty_at.since(now).div_ceil(self.interval)
    }

    #[inline]
    fn taken(&self) -> u64 {
        u64::try_from(self.unseen.len()).unwrap_or(u64::MAX)
    }

    #[inline]
    fn fall(&mut self, at: Tick) {
        let mut drains = self.interval;
        if self.burst == Burst::Of(0) {
            drains += TICK;
        }
        self.empty_at = self.empty_at.max(at).plus(drains);
    }

    /// Removes the unproven request that was granted at `granted`. Returns whether there was no evidence
    /// for it.
    #[inline]
    pub(crate) fn withdraw(&mut self, granted: Tick) -> bool {
        let index = self.unseen.partition_point(|unseen| *unseen < granted);
        let is_unseen = self.unseen.get(index) == Some(&granted);
        if is_unseen {
            self.unseen.remove(index);
        }
        is_unseen
    }
}

/// Returns the number of probes at this `age` of the oldest request without evidence, and the age at
/// which there are more.
fn probed(age: u64) -> (u64, u64) {
    if age < LONG {
        return (0, LONG);
    }
    let doublings = age.saturating_sub(MORE_PROBES - DOUBLED) / DOUBLED;
    let next = MORE_PROBES + doublings * DOUBLED;
    (1 << doublings.min(MOST_DOUBLINGS), next)
}

/// Allowance for a gateway that reads its clock once per turn of its loop, which a bucket without a
/// burst would not forgive. Measured before this crate was written: nginx at 50 a second needs 21
/// ms between requests, not 20.
pub(crate) const TICK: u64 = 1_000_000;

/// More than the one-way delay of most networks. An automatic burst holds the requests of 180 ms,
/// so a smaller margin gains nothing. Simulated with slow responses and stalls of 300 ms: a margin of
/// 100 ms had 158 of 100,000 requests refused, and one of 150 ms had 16.
const MARGIN: u64 = 150_000_000;

/// With this a response time is forgotten after some hundred responses, three seconds at the full rate.
const FORGETS: u64 = 128;

/// A second, three times the longest stalls that were simulated (300 ms).
const LONG: u64 = 1_000_000_000;

/// Age at which a second probe follows, because most stalls are over after three seconds. From then on the
/// number of probes doubles each half second: longer stalls are rare, while twenty slow calls
/// together are common.
const MORE_PROBES: u64 = 3_500_000_000;

const DOUBLED: u64 = 500_000_000;

/// Enough doublings for more probes than any quota.
const MOST_DOUBLINGS: u64 = 32;

#[cfg(test)]
mod tests;
