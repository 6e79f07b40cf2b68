//! The rule behind the promise: permits that come back after the proof of counting.

use std::collections::VecDeque;

use crate::{
    Quota,
    clock::{Tick, nanos},
};

/// At most `limit` requests are live at any grant. A request is live from its grant until `hold`
/// after the response has proved that the service counted it.
///
/// Why no interval can then hold more: take any interval of the quota's length and, of the
/// requests counted in it, the one granted last. When it was granted each of the others was
/// live, because its proof is not older than its count, and its count is in the interval. So
/// there are fewer than `limit` others, whatever the delays were and in whatever order.
///
/// Requests are told apart by their numbers alone: so many granted, so many proven, so many back.
#[derive(Debug)]
pub(crate) struct ProofWindow {
    limit: u64,
    hold: u64,
    /// Granted so far and not withdrawn.
    granted: u64,
    /// When requests were proven, in order, for the last two holds.
    proofs: VecDeque<Tick>,
    /// Proofs older than that.
    forgotten: u64,
    /// Proofs that were a hold old when the clock was last seen: permits that are back.
    back: u64,
    /// When the next permit comes back, if one does.
    next_back: Tick,
    /// The most that were ever live at a grant.
    most_live: u64,
}

// === impl ProofWindow ===

#[expect(
    clippy::arithmetic_side_effects,
    reason = "counts of requests, of which there is one a nanosecond at most: 584 years' worth"
)]
impl ProofWindow {
    pub(crate) fn new(quota: Quota) -> Self {
        Self {
            limit: u64::from(quota.requests().get()),
            hold: nanos(quota.hold()),
            granted: 0,
            proofs: VecDeque::new(),
            forgotten: 0,
            back: 0,
            next_back: Tick::NEVER,
            most_live: 0,
        }
    }

    /// Keeps within another number from now on.
    pub(crate) fn limit_to(&mut self, quota: Quota) {
        self.limit = u64::from(quota.requests().get());
    }

    /// The clock was seen at `now`.
    #[inline]
    pub(crate) fn see(&mut self, now: Tick) {
        while self.next_back <= now {
            self.back += 1;
            self.next_back = self.comes_back(self.back);
        }
    }

    /// Whether one more may be granted, as far as the clock was seen.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.live() < self.limit
    }

    /// From when on one more may be granted; `None` while that depends on a proof to come.
    #[inline]
    pub(crate) fn opens_at(&self) -> Option<Tick> {
        match self.over() {
            None => Some(Tick::ZERO),
            Some(over) if over < self.back => Some(Tick::ZERO),
            Some(over) => Some(self.proof(over)?.plus(self.hold)),
        }
    }

    /// How many have been granted beyond the first `limit`: the number, from zero, of the proof
    /// that must be a hold old before the next grant.
    #[inline]
    pub(crate) fn over(&self) -> Option<u64> {
        self.granted.checked_sub(self.limit)
    }

    #[inline]
    pub(crate) fn grant(&mut self) {
        self.granted += 1;
        self.most_live = self.most_live.max(self.live());
    }

    /// A request that was granted is proven to have been counted no later than `at`.
    #[inline]
    pub(crate) fn prove(&mut self, at: Tick) {
        if self.proofs.len() == self.proofs.capacity() {
            self.forget(at);
        }
        if self.proofs.back().is_none_or(|last| *last <= at) {
            self.proofs.push_back(at);
        } else {
            // A service that tells its own times can prove out of order.
            let place = self.proofs.partition_point(|other| *other <= at);
            self.proofs.insert(place, at);
        }
        self.next_back = self.next_back.min(at.plus(self.hold));
    }

    #[cold]
    /// Makes room by forgetting what is two holds old, before more room is asked for.
    fn forget(&mut self, now: Tick) {
        while self.forgotten < self.back
            && let Some(first) = self.proofs.front()
            && first.plus(self.hold).plus(self.hold) <= now
        {
            self.proofs.pop_front();
            self.forgotten += 1;
        }
    }

    /// When the permit proven as number `number` comes back, if it is proven.
    #[inline]
    fn comes_back(&self, number: u64) -> Tick {
        let proof = self.proof(number);
        proof.map_or(Tick::NEVER, |at| at.plus(self.hold))
    }

    /// A request that was granted was never sent.
    pub(crate) fn withdraw(&mut self) {
        self.granted = self.granted.saturating_sub(1);
    }

    /// Permits that are live, as far as the clock was seen.
    #[inline]
    pub(crate) fn live(&self) -> u64 {
        self.granted.saturating_sub(self.back)
    }

    /// The most permits that were live at any grant, the granted one among them.
    pub(crate) fn most_live(&self) -> u64 {
        self.most_live
    }

    pub(crate) fn hold(&self) -> u64 {
        self.hold
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Proofs that were a hold old when the clock was last seen.
    pub(crate) fn back(&self) -> u64 {
        self.back
    }

    /// Proofs so old that no rule asks for them.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Granted, sent perhaps, and not proven.
    pub(crate) fn unproven(&self) -> u64 {
        self.granted.saturating_sub(self.proven())
    }

    /// When requests were proven, in order, for the last two holds at least.
    pub(crate) fn proofs(&self) -> impl Iterator<Item = Tick> + '_ {
        self.proofs.iter().copied()
    }

    /// Proven so far.
    pub(crate) fn proven(&self) -> u64 {
        self.forgotten + u64::try_from(self.proofs.len()).unwrap_or(u64::MAX)
    }

    /// When the request proven as number `number`, from zero, was proven.
    #[inline]
    pub(crate) fn proof(&self, number: u64) -> Option<Tick> {
        let place = number.checked_sub(self.forgotten)?;
        self.proofs.get(usize::try_from(place).ok()?).copied()
    }
}

#[cfg(test)]
mod tests;
