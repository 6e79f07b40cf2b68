//! What decides whether one more request may be sent: arithmetic on `now`, no clock, no lock.

mod ladder;

use std::collections::VecDeque;

use tokio::time::Instant;

use self::ladder::Ladder;
use crate::{
    Limits, Outcome, Proof, Quota, Rules, Rung,
    clock::{Epoch, Tick, nanos},
    gate::{Admit, Earliest},
    rule::{Dated, Rule},
};

/// The requests in flight, and the rules of each quota.
#[derive(Debug)]
pub(crate) struct Requests {
    epoch: Epoch,
    /// When an event last had a time.
    seen: Tick,
    in_flight: u32,
    most_in_flight: u32,
    /// One for each quota.
    rules: Vec<Rule>,
    /// Whether grants may be made at times that nobody looks at.
    undated: bool,
    quotas: Vec<Quota>,
    /// What the highest rung keeps within.
    highest: Rules,
    ladder: Ladder,
    /// When each lost request can no longer be counted, in order.
    lost: VecDeque<Tick>,
    lost_after: u64,
    proof: Proof,
}

/// One grant, as its permit remembers it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    /// When it was made; [`Tick::NEVER`] where nobody looked at the clock.
    at: Tick,
    /// The ladder's episode at the time.
    episode: u32,
}

// === impl Requests ===

impl Requests {
    pub(crate) fn new(limits: &Limits) -> Self {
        let (quotas, highest) = (limits.quotas(), limits.safe_against());
        let ladder = Ladder::new(limits.start());
        let rules: Vec<Rule> = quotas
            .iter()
            .map(|quota| {
                let (quota, rules) = ladder.keeps(*quota, highest);
                Rule::new(quota, rules)
            })
            .collect();
        Self {
            epoch: Epoch::default(),
            seen: Tick::ZERO,
            in_flight: 0,
            most_in_flight: limits.most_in_flight(),
            undated: rules.iter().all(Rule::is_undated),
            rules,
            quotas: quotas.to_vec(),
            highest,
            ladder,
            lost: VecDeque::new(),
            lost_after: nanos(limits.lost()),
            proof: limits.proven_by(),
        }
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The fullest window's live permits at `now`.
    pub(crate) fn live_at(&mut self, now: Instant) -> u64 {
        self.see(now);
        let live = self.rules.iter().map(Rule::live);
        live.max().unwrap_or_default()
    }

    /// The most that can have been counted in any interval of the first quota, so far.
    pub(crate) fn certificate(&self) -> u64 {
        self.rules.first().map(Rule::most_live).unwrap_or_default()
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
                && grant.at != Tick::NEVER
            {
                // Not before it was granted, whatever the service says.
                at = now.minus(nanos(served)).max(grant.at);
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

    /// What an answer says about the limits. Gives the new rung if it led to another.
    fn hear(&mut self, now: Tick, grant: Grant, outcome: Outcome) -> Option<Rung> {
        let rung = match outcome {
            Outcome::Answered | Outcome::Served(_) => self.ladder.accept(now),
            Outcome::RateExceeded => self.ladder.refuse(now, grant.episode),
            Outcome::ConnectionsExceeded => {
                self.ladder.hush(now);
                None
            }
            Outcome::QuotaExceeded(_) | Outcome::Unsent | Outcome::Lost => None,
        };
        if rung.is_some() {
            for (rule, quota) in self.rules.iter_mut().zip(&self.quotas) {
                let (quota, rules) = self.ladder.keeps(*quota, self.highest);
                rule.keep(quota, rules);
            }
            self.undated = self.rules.iter().all(Rule::is_undated);
        }
        rung
    }

    /// The granted request is proven to have been counted by `at`, as it turns out now.
    fn prove(&mut self, at: Tick, now: Tick, grant: Grant) {
        for rule in &mut self.rules {
            rule.prove(at, now);
            if grant.at != Tick::NEVER {
                rule.learn(now, at.since(grant.at));
            }
        }
    }

    /// The request was sent and no proof will come: it may be counted until `lost_after`.
    pub(crate) fn lose(&mut self, now: Instant) {
        let now = self.see(now);
        self.lost.push_back(now.plus(self.lost_after));
    }

    /// The request was granted and never sent.
    pub(crate) fn withdraw(&mut self) {
        for rule in &mut self.rules {
            rule.withdraw();
        }
    }

    /// The request is no longer in flight.
    pub(crate) fn end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// The clock says `now`. Proves the lost requests whose time is over.
    fn see(&mut self, now: Instant) -> Tick {
        let now = self.epoch.tick(now).max(self.seen);
        while let Some(at) = self.lost.front().copied().filter(|at| *at <= now) {
            self.lost.pop_front();
            let seen = at.max(self.seen);
            for rule in &mut self.rules {
                // Nothing is learned from it: how long an answer would have taken is not known.
                rule.see(seen);
                rule.prove(at, seen);
            }
        }
        self.seen = now;
        for rule in &mut self.rules {
            rule.see(now);
        }
        now
    }

    /// From when on one more may be granted, as far as the clock was seen; `None` while that
    /// depends on something to come.
    fn opens_at(&mut self) -> Option<Tick> {
        if self.in_flight >= self.most_in_flight {
            return None;
        }
        let seen = self.seen;
        let mut opens = self.ladder.silent_until();
        for rule in &mut self.rules {
            opens = opens.max(rule.opens_at(seen)?);
        }
        Some(opens)
    }

    fn grant(&mut self, dated: Dated) -> Grant {
        self.in_flight = self.in_flight.saturating_add(1);
        for rule in &mut self.rules {
            rule.grant(self.seen, dated);
        }
        Grant {
            at: match dated {
                Dated::Seen => self.seen,
                Dated::Later => Tick::NEVER,
            },
            episode: self.ladder.episode(),
        }
    }
}

impl Admit for Requests {
    type Grant = Grant;

    fn earliest(&mut self, now: Instant) -> Earliest {
        let now = self.see(now);
        match self.opens_at() {
            Some(at) if at <= now => Earliest::Now,
            Some(at) => self.when(at),
            // Nobody can tell when an answer comes, but a lost request is settled then. It frees
            // nothing in flight.
            None if self.in_flight < self.most_in_flight => {
                let settled = self.lost.front().copied();
                settled.map_or(Earliest::OnReturn, |at| self.when(at))
            }
            None => Earliest::OnReturn,
        }
    }

    fn admit(&mut self, now: Instant) -> Grant {
        self.see(now);
        self.grant(Dated::Seen)
    }

    fn admit_undated(&mut self) -> Option<Grant> {
        let open = self.undated && self.opens_at().is_some_and(|at| at <= self.seen);
        open.then(|| self.grant(Dated::Later))
    }
}

impl Requests {
    fn when(&self, at: Tick) -> Earliest {
        self.epoch
            .instant(at)
            .map_or(Earliest::OnReturn, Earliest::At)
    }
}

/// What an answer came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) proven: bool,
    /// The new rung, if it led to another.
    pub(crate) rung: Option<Rung>,
}

#[cfg(test)]
mod tests;
