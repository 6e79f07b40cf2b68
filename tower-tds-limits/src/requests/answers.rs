//! What becomes of requests after their grant.

use tokio::time::Instant;

use super::{Grant, Requests};
use crate::{
    Outcome, Proof, Rung,
    clock::{Tick, nanos},
};

/// What an answer came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) proven: bool,
    /// The new rung, if it led to another.
    pub(crate) rung: Option<Rung>,
}

// === impl Requests ===

impl Requests {
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
                rule.learn(now, at.since(granted), now.since(granted));
            }
        });
    }
}
