//! What decides whether one more request may be sent: arithmetic on `now`, no clock, no lock.

mod grant;
mod ladder;
mod lost;
mod quotas;

use tokio::time::Instant;

pub(crate) use self::grant::Grant;
use self::{ladder::Ladder, lost::Lost, quotas::Quotas};
use crate::{
    Limits, Outcome, Proof, Rung,
    clock::{Epoch, Tick, nanos},
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

/// What an answer came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) proven: bool,
    /// The new rung, if it led to another.
    pub(crate) rung: Option<Rung>,
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
            most_in_flight: limits.most_in_flight(),
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

    /// An answer is there: what it says about the limits, and whether it is the proof.
    #[inline]
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        grant: Grant,
        outcome: Outcome,
        whole: bool,
    ) -> Answer {
        let now = self.see(now);
        let rung = self.hear(now, grant, outcome);
        let proven = whole || self.proof == Proof::Head;
        if proven {
            let mut at = now;
            if let Outcome::Served(served) = outcome
                && let Some(granted) = grant.at()
            {
                // Not before it was granted, whatever the service says.
                at = now.minus(nanos(served)).max(granted);
            }
            self.prove(at, now, grant);
        }
        if whole {
            self.end();
        }
        Answer { proven, rung }
    }

    /// The response body has ended, and with it whatever was not proven.
    pub(crate) fn prove_by_end(&mut self, now: Instant, grant: Grant) {
        let now = self.see(now);
        self.prove(now, now, grant);
        self.end();
    }

    /// The request was sent and no proof will come: it may be counted for some time yet.
    pub(crate) fn lose(&mut self, now: Instant) {
        let now = self.see(now);
        self.lost.add(now);
    }

    /// The request was granted and never sent.
    pub(crate) fn withdraw(&mut self) {
        self.quotas.each(|rule| rule.withdraw());
    }

    /// The request is no longer in flight.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// What an answer says about the limits. Gives the new rung if it led to another.
    #[inline]
    fn hear(&mut self, now: Tick, grant: Grant, outcome: Outcome) -> Option<Rung> {
        let rung = match outcome {
            Outcome::Answered | Outcome::Served(_) => self.ladder.accept(now),
            Outcome::RateExceeded => self.ladder.refuse(now, grant.not_before()),
            Outcome::ConnectionsExceeded => {
                self.ladder.hush(now);
                None
            }
            Outcome::QuotaExceeded(_) | Outcome::Unsent | Outcome::Lost => None,
        };
        if rung.is_some() {
            self.quotas.keep(&self.ladder);
            self.undated = self.quotas.are_undated();
        }
        rung
    }

    /// The granted request is proven to have been counted by `at`, as it turns out now.
    #[inline]
    fn prove(&mut self, at: Tick, now: Tick, grant: Grant) {
        self.quotas.each(|rule| {
            rule.prove(at, now);
            if let Some(granted) = grant.at() {
                rule.learn(now, at.since(granted));
            }
        });
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

    /// From when on one more may be granted, as far as the clock was seen; `None` while that
    /// depends on something to come.
    #[inline]
    fn opens_at(&mut self) -> Option<Tick> {
        if self.in_flight >= self.most_in_flight {
            return None;
        }
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
        let now = self.see(now);
        match self.opens_at() {
            Some(at) if at <= now => Earliest::Now,
            Some(at) => self.when(at),
            // Nobody can tell when an answer comes, but a lost request is settled then. It frees
            // nothing in flight.
            None if self.in_flight < self.most_in_flight => {
                let settled = self.lost.next();
                settled.map_or(Earliest::OnReturn, |at| self.when(at))
            }
            None => Earliest::OnReturn,
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
