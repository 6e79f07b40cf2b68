//! Safety against leaky buckets: a level that falls steadily and rises by one with each request.

use std::collections::VecDeque;

use crate::{
    Burst, Quota,
    clock::{Tick, nanos},
};

/// A leaky bucket into which each request falls when it is proven.
///
/// The level is highest if each request fell as late as possible: a proven one at its proof, an
/// unproven one at now. If one more fits then, it fits for all real times.
///
/// An automatic burst relies on evidence. A quick response shows that the network moves, so the
/// requests granted a [margin](Times::margin) before it have been counted: they fall at that
/// response. Time alone is no evidence: without responses, all requests since the last response
/// keep their places. A bucket of ten takes one more, which may then be sent as a probe. A response
/// to the probe shows that the calls are slow and the network moves.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// The time in which the level falls by one.
    interval: u64,
    burst: Burst,
    /// The burst of a bucket that holds the whole quota.
    most: u64,
    /// Requests granted, and neither proven nor withdrawn.
    unproven: u64,
    /// When all fallen requests have drained.
    empty_at: Tick,
    /// Unproven requests without evidence, in the order of their grants.
    unseen: VecDeque<Granted>,
    /// Their number.
    unseen_count: u64,
    times: Times,
    overlaps: bool,
}

/// Requests that were granted at one time.
#[derive(Debug, Clone, Copy)]
struct Granted {
    at: Tick,
    count: u64,
}

/// Response times of this span of responses, and of the one before.
#[derive(Debug, Clone, Copy)]
struct Times {
    shortest: (u64, u64),
    longest: (u64, u64),
    left: u32,
}

// === impl Bucket ===

impl Bucket {
    pub(crate) fn new(quota: Quota, burst: Burst) -> Self {
        Self {
            interval: nanos(quota.spacing()),
            burst,
            most: u64::from(quota.requests().get()) - 1,
            unproven: 0,
            empty_at: Tick::ZERO,
            unseen: VecDeque::new(),
            unseen_count: 0,
            times: Times::new(),
            overlaps: false,
        }
    }

    /// A bucket of unknown level with `unproven` requests.
    pub(crate) fn filled(quota: Quota, burst: Burst, now: Tick, unproven: u64) -> Self {
        let mut bucket = Self::new(quota, burst);
        bucket.unproven = unproven;
        bucket.drain(now);
        bucket
    }

    /// Keeps another rate and burst. The level is kept as a number of requests.
    pub(crate) fn keep(&mut self, quota: Quota, burst: Burst, now: Tick) {
        let interval = nanos(quota.spacing());
        let drains = u128::from(self.empty_at.since(now)) * u128::from(interval);
        let drains = drains.div_ceil(self.interval.into());
        self.empty_at = now.plus(u64::try_from(drains).unwrap_or(u64::MAX));
        self.interval = interval;
        self.burst = burst;
        self.most = u64::from(quota.requests().get()) - 1;
    }

    /// Begins full at `now`.
    pub(crate) fn drain(&mut self, now: Tick) {
        self.empty_at = now.plus(self.interval.saturating_mul(self.most + 1));
    }

    /// The first time at which one more may be granted, or `None` while that depends on a response
    /// or a probe.
    #[inline]
    pub(crate) fn opens_at(&self, now: Tick) -> Option<Tick> {
        let burst = match self.burst {
            Burst::Of(burst) => u64::from(burst),
            Burst::Auto => LEAST + self.probes(now),
        };
        let room = burst.min(self.most).checked_sub(self.taken())?;
        let mut ahead = self.interval.saturating_mul(room);
        if self.overlaps {
            ahead += self.times.shortest_known() / 4 * 3;
        }
        Some(self.empty_at.minus(ahead))
    }

    /// When an automatic burst allows another probe without a response, after `now`.
    pub(crate) fn probes_at(&self, now: Tick) -> Tick {
        match self.unseen.front().filter(|_| self.burst == Burst::Auto) {
            Some(oldest) => oldest.at.plus(self.times.probed(now.since(oldest.at)).1),
            None => Tick::NEVER,
        }
    }

    #[inline]
    pub(crate) fn grant(&mut self, now: Tick) {
        self.unproven += 1;
        self.unseen_count += 1;
        match self.unseen.back_mut() {
            Some(last) if last.at == now => last.count += 1,
            Some(_) | None => self.unseen.push_back(Granted { at: now, count: 1 }),
        }
    }

    /// Records the proof that a request granted at `granted` was counted no later than `at`.
    #[inline]
    pub(crate) fn prove(&mut self, at: Tick, granted: Tick) {
        let had_fallen = !self.remove(granted);
        if !(had_fallen && self.burst == Burst::Auto) {
            self.fall(at, 1);
        }
    }

    /// Records the response at `now` to a request granted at `granted`.
    #[inline]
    pub(crate) fn answered(&mut self, now: Tick, granted: Tick) {
        let took = now.since(granted);
        self.times.learn(took);
        if took > self.times.shortest().saturating_mul(QUICK) {
            return;
        }
        let seen = self.unseen_count;
        let before = now.minus(self.times.margin());
        while let Some(oldest) = self.unseen.front()
            && oldest.at <= before
        {
            self.unseen_count -= oldest.count;
            self.unseen.pop_front();
        }
        if self.burst == Burst::Auto {
            self.fall(now, seen - self.unseen_count);
        }
    }

    /// Takes back the grant at `granted` of a request that was never sent.
    pub(crate) fn withdraw(&mut self, granted: Tick) {
        self.remove(granted);
    }

    /// The requests with a place that have not fallen, and the time until the others have drained,
    /// in nanoseconds.
    #[inline]
    pub(crate) fn filling(&self, now: Tick) -> (u64, u64) {
        (self.taken(), self.empty_at.since(now))
    }

    /// Lets one request at a time be sent before the one before it has drained.
    ///
    /// The overlap is shorter than the shortest response time, which covers the way of this request
    /// and the way back of the other. It relies on evidence, not on proof.
    pub(crate) fn overlap(&mut self, overlaps: bool) {
        self.overlaps = overlaps;
    }

    /// The smallest quota with which it drains, and the smallest number of places that hold all
    /// requests.
    pub(crate) fn held(&self, now: Tick) -> (u64, u64) {
        let level = self.empty_at.since(now).div_ceil(self.interval);
        (level.min(1), self.unproven + level)
    }

    #[inline]
    fn taken(&self) -> u64 {
        match self.burst {
            Burst::Of(_) => self.unproven,
            Burst::Auto => self.unseen_count,
        }
    }

    #[inline]
    fn fall(&mut self, at: Tick, count: u64) {
        let mut drains = self.interval * count;
        if self.burst == Burst::Of(0) {
            drains += TICK * count;
        }
        self.empty_at = self.empty_at.max(at).plus(drains);
    }

    /// Removes an unproven request. Returns whether there was no evidence for it.
    #[inline]
    fn remove(&mut self, granted: Tick) -> bool {
        self.unproven = self.unproven.saturating_sub(1);
        let place = self.unseen.partition_point(|unseen| unseen.at < granted);
        let unseen = self.unseen.get_mut(place);
        let Some(unseen) = unseen.filter(|unseen| unseen.at == granted) else {
            return false;
        };
        unseen.count -= 1;
        self.unseen_count -= 1;
        while self.unseen.front().is_some_and(|first| first.count == 0) {
            self.unseen.pop_front();
        }
        while self.unseen.back().is_some_and(|last| last.count == 0) {
            self.unseen.pop_back();
        }
        true
    }

    /// How many more probes may be sent.
    #[inline]
    fn probes(&self, now: Tick) -> u64 {
        let oldest = self.unseen.front();
        oldest.map_or(0, |oldest| self.times.probed(now.since(oldest.at)).0)
    }
}

// === impl Times ===

impl Times {
    const fn new() -> Self {
        Self {
            shortest: (u64::MAX, u64::MAX),
            longest: (0, 0),
            left: SPAN,
        }
    }

    #[inline]
    fn learn(&mut self, took: u64) {
        self.shortest.0 = self.shortest.0.min(took);
        self.longest.0 = self.longest.0.max(took);
        self.left -= 1;
        if self.left == 0 {
            self.shortest = (u64::MAX, self.shortest.0);
            self.longest = (0, self.longest.0);
            self.left = SPAN;
        }
    }

    /// The number of probes at this `age` of the oldest request without evidence, and the age at
    /// which there are more.
    fn probed(&self, age: u64) -> (u64, u64) {
        let long = LONG.max(self.shortest_known().saturating_mul(USUAL_ANSWERS));
        let Some(more) = age.checked_sub(long) else {
            return (0, long);
        };
        let doublings = more.checked_sub(MORE_PROBES).map_or(0, |m| m / DOUBLED + 1);
        let next = MORE_PROBES + doublings * DOUBLED;
        (1 << doublings.min(MOST_DOUBLINGS), long + next)
    }

    #[inline]
    fn shortest(&self) -> u64 {
        self.shortest.0.min(self.shortest.1)
    }

    /// Zero before the first answer.
    #[inline]
    fn shortest_known(&self) -> u64 {
        let shortest = self.shortest();
        if shortest < u64::MAX { shortest } else { 0 }
    }

    /// The bound of the one-way time: a request granted this long before a response has been
    /// counted at it. Two ways take no longer than the shortest response, and vary no more than all
    /// responses.
    #[inline]
    fn margin(&self) -> u64 {
        let shortest = self.shortest();
        let spread = self.longest.0.max(self.longest.1) - shortest;
        (shortest.min(spread) / 2).max(LEAST_MARGIN)
    }
}

/// Without a burst there is no room for a gateway that reads its clock once per turn of its loop:
/// nginx at 50 a second needed 21 ms between requests, and not 20 (the study behind this crate).
const TICK: u64 = 1_000_000;

/// One less than the burst that gateways are usually configured with (the examples of nginx have 5
/// to 20, ten in the middle).
const LEAST: u64 = 9;

/// Above the one-way delay of most networks. The nine places hold the requests of 180 ms, so a
/// smaller margin gains nothing. Under stalls of 300 ms with 100 ms, 158 of 100,000 were refused at
/// slow answers, and 16 with 150 ms.
const LEAST_MARGIN: u64 = 150_000_000;

/// A response is quick if it takes at most this many times the shortest one. A slower one may have
/// been delayed on its way back, and is no evidence about now.
const QUICK: u64 = 4;

/// Responses in a span: three seconds at the full rate.
const SPAN: u32 = 128;

/// A second: three times the stalls of the study.
const LONG: u64 = 1_000_000_000;

/// The same bound as a multiple of the shortest response time, where that is longer.
const USUAL_ANSWERS: u64 = 8;

/// A second probe follows when a stall of three seconds is over. Then their number doubles each
/// half second: a stall is rarely that long, and twenty slow calls are often made together.
const MORE_PROBES: u64 = 2_500_000_000;

const DOUBLED: u64 = 500_000_000;

/// Enough doublings for more probes than any quota.
const MOST_DOUBLINGS: u64 = 32;

#[cfg(test)]
mod tests;
