//! What decides whether one more request may be sent: arithmetic on `now`, no clock, no lock.
//! What follows a grant stands in `answers`.

mod answers;
mod grant;
mod ladder;
mod lost;
mod quotas;

use tokio::time::Instant;

pub(crate) use self::grant::Grant;
use self::{ladder::Ladder, lost::Lost, quotas::Quotas};
use crate::{
    Limits, Proof, Rung,
    clock::{Epoch, Tick},
    gate::{Admit, Earliest},
    rule::Dated,
};

/// The requests in flight, and the rules of each quota.
#[derive(Debug)]
pub(crate) struct Requests {
    epoch: Epoch,
    /// When an event last had a time.
    seen: Tick,
    in_flight: u32,
    most_in_flight: u32,
    /// Whether grants may be made at times that nobody looks at.
    undated: bool,
    proof: Proof,
    quotas: Quotas,
    ladder: Ladder,
    lost: Lost,
}

// === impl Requests ===

impl Requests {
    pub(crate) fn new(limits: &Limits) -> Self {
        let ladder = Ladder::new(limits.start());
        let quotas = Quotas::new(limits, &ladder);
        Self {
            epoch: Epoch::default(),
            seen: Tick::ZERO,
            in_flight: 0,
            most_in_flight: limits.most_in_flight().get(),
            undated: quotas.are_undated(),
            proof: limits.proven_by(),
            quotas,
            ladder,
            lost: Lost::new(limits.lost()),
        }
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The fullest window's live permits at `now`.
    pub(crate) fn live_at(&mut self, now: Instant) -> u64 {
        self.see(now);
        self.quotas.live()
    }

    /// The most that can have been counted in any interval of the first quota, so far.
    pub(crate) fn certificate(&self) -> u64 {
        self.quotas.certificate()
    }

    pub(crate) fn rung(&self) -> Rung {
        self.ladder.rung()
    }

    /// Until when nothing is granted after a refusal, if that is not over at `now`.
    pub(crate) fn silent_until(&self, now: Instant) -> Option<Instant> {
        let until = self.epoch.instant(self.ladder.silent_until())?;
        (until > now).then_some(until)
    }

    /// The clock says `now`, or said so a moment ago: whoever has looked may be overtaken by
    /// another before the lock is theirs, and comes with that one then. Proves the lost requests
    /// whose time is over.
    #[inline]
    fn see(&mut self, now: Instant) -> Tick {
        let now = self.epoch.tick(now).max(self.seen);
        while let Some(at) = self.lost.settled_by(now) {
            let seen = at.max(self.seen);
            self.quotas.each(|rule| {
                // Nothing is learned from it: how long an answer would have taken is not known.
                rule.see(seen);
                rule.prove(at, seen);
            });
        }
        self.seen = now;
        self.quotas.each(|rule| rule.see(now));
        now
    }

    /// Whether one more may be granted, as far as the clock was seen.
    #[inline]
    fn is_open(&mut self) -> bool {
        self.in_flight < self.most_in_flight
            && self.ladder.silent_until() <= self.seen
            && self.quotas.are_open(self.seen)
    }

    /// From when on one more may be granted, as far as the clock was seen and whatever is in
    /// flight; `None` while that depends on something to come.
    #[inline]
    fn opens_at(&mut self) -> Option<Tick> {
        let opens = self.quotas.open_at(self.seen)?;
        Some(opens.max(self.ladder.silent_until()))
    }

    #[inline]
    fn grant(&mut self, dated: Dated) -> Grant {
        self.in_flight = self.in_flight.saturating_add(1);
        let seen = self.seen;
        self.quotas.each(|rule| rule.grant(seen, dated));
        match dated {
            Dated::Seen => Grant::seen(seen),
            Dated::Later => Grant::later(seen),
        }
    }

    fn when(&self, at: Tick) -> Earliest {
        self.epoch
            .instant(at)
            .map_or(Earliest::OnReturn, Earliest::At)
    }
}

impl Admit for Requests {
    type Grant = Grant;

    #[inline]
    fn earliest(&mut self, now: Instant) -> Earliest {
        if self.in_flight < self.most_in_flight {
            self.earliest_in_front(now)
        } else {
            self.see(now);
            Earliest::OnReturn
        }
    }

    /// Whatever is in flight may itself depend on those who come to the front, and they are few:
    /// they keep within the quotas alone.
    #[inline]
    fn earliest_in_front(&mut self, now: Instant) -> Earliest {
        let now = self.see(now);
        match self.opens_at() {
            Some(at) if at <= now => Earliest::Now,
            Some(at) => self.when(at),
            None => {
                // Nobody can tell when an answer comes, but a lost request is settled then.
                let settled = self.lost.next();
                settled.map_or(Earliest::OnReturn, |at| self.when(at))
            }
        }
    }

    #[inline]
    fn admit(&mut self, now: Instant) -> Grant {
        // Whoever asks has just been told that it is now.
        if !self.epoch.was_last(now) {
            self.see(now);
        }
        self.grant(Dated::Seen)
    }

    #[inline]
    fn admit_undated(&mut self) -> Option<Grant> {
        let open = self.undated && self.is_open();
        open.then(|| self.grant(Dated::Later))
    }
}

#[cfg(test)]
mod tests;
