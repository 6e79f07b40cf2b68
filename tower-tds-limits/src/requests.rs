//! What decides whether one more request may be sent: arithmetic on `now`, no clock, no lock.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use crate::{
    Limits, Proof,
    gate::{Admit, Earliest},
    rule::Rule,
};

/// The requests in flight, and the rules of each quota.
#[derive(Debug)]
pub(crate) struct Requests {
    in_flight: u32,
    most_in_flight: u32,
    rules: Vec<Rule>,
    /// When each lost request can no longer be counted, in order.
    lost: VecDeque<Instant>,
    lost_after: Duration,
    proof: Proof,
}

// === impl Requests ===

impl Requests {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            in_flight: 0,
            most_in_flight: limits.most_in_flight(),
            rules: limits
                .quotas()
                .iter()
                .flat_map(|quota| Rule::all(*quota, limits.safe_against()))
                .collect(),
            lost: VecDeque::new(),
            lost_after: limits.lost(),
            proof: limits.proven_by(),
        }
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The fullest window's live permits at `now`.
    pub(crate) fn live_at(&mut self, now: Instant) -> usize {
        self.settle(now);
        self.rules
            .iter_mut()
            .map(|rule| rule.live_at(now))
            .max()
            .unwrap_or_default()
    }

    /// The response head is there. Whether that is the proof is the limits' choice.
    pub(crate) fn answer(&mut self, now: Instant, granted: Instant) -> Answered {
        match self.proof {
            Proof::Head => {
                self.prove(now, granted);
                Answered::Proven
            }
            Proof::End => Answered::Unproven,
        }
    }

    /// The request granted at `granted` is proven to have been counted no later than `now`.
    pub(crate) fn prove(&mut self, now: Instant, granted: Instant) {
        self.settle(now);
        for rule in &mut self.rules {
            rule.prove_at(now);
            rule.learn(now.saturating_duration_since(granted));
        }
    }

    /// The request was sent and no proof will come: it may be counted until `lost_after`.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "`lost_after` is at most a day, which no clock overflows"
    )]
    pub(crate) fn lose(&mut self, now: Instant) {
        self.settle(now);
        self.lost.push_back(now + self.lost_after);
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

    /// Proves the lost requests whose time is over. Called before every other proof, so that
    /// the rules hear of proofs in order.
    fn settle(&mut self, now: Instant) {
        while let Some(at) = self.lost.front().copied().filter(|at| *at <= now) {
            self.lost.pop_front();
            for rule in &mut self.rules {
                // Nothing is learned from it: how long an answer would have taken is not known.
                rule.prove_at(at);
            }
        }
    }
}

impl Admit for Requests {
    fn earliest(&mut self, now: Instant) -> Earliest {
        if self.in_flight >= self.most_in_flight {
            return Earliest::OnReturn;
        }
        self.settle(now);
        let earliest = self
            .rules
            .iter_mut()
            .map(|rule| rule.earliest_at(now))
            .fold(Earliest::Now, Earliest::later);
        match (earliest, self.lost.front()) {
            // Nobody can tell when an answer comes, but a lost request is settled then.
            (Earliest::OnReturn, Some(lost)) => Earliest::At(*lost),
            (earliest, _) => earliest,
        }
    }

    fn admit(&mut self, now: Instant) {
        self.in_flight = self.in_flight.saturating_add(1);
        for rule in &mut self.rules {
            rule.grant_at(now);
        }
    }
}

/// Whether the response head has proved the counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    Proven,
    Unproven,
}

#[cfg(test)]
mod tests;
