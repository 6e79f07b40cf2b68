//! One request's place inside the limits.

use std::{sync::Arc, time::Duration};

use crate::{
    credential::{Credential, Probe},
    events,
    gate::{Gate, Permit},
    request::Outcome,
    requests::{Answered, Grant, Requests},
};

/// A grant. Dropping it says what is true at its stage, exactly once.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    credential: Arc<Credential>,
    grant: Grant,
    stage: Stage,
    /// There if this request tries whether a pause is over.
    probe: Option<Probe>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Granted and not sent: nothing can have been counted.
    // ## Granted => (Sent | Over)
    Granted,
    /// On its way: it can be counted at any time.
    // ## Sent => (Proven | Over)
    Sent,
    /// Counted, and its body is still coming.
    // ## Proven => Over
    Proven,
    Over,
}

// === impl RequestPermit ===

impl RequestPermit {
    /// The request is about to be sent.
    pub(crate) fn sent(&mut self, probe: Option<Probe>) {
        self.stage = Stage::Sent;
        self.probe = probe;
    }

    /// The response head is there, and with it perhaps the whole response. Gives what rides on
    /// in the body, if anything does.
    pub(crate) fn after_head(mut self, outcome: Outcome, whole: bool) -> Option<Self> {
        match outcome {
            Outcome::Unsent => self.unsent(),
            Outcome::Lost if whole => self.ended(),
            // The head proves nothing; the end of the body will.
            Outcome::Lost => return Some(self),
            Outcome::Answered
            | Outcome::Served(_)
            | Outcome::RateExceeded
            | Outcome::QuotaExceeded(_)
            | Outcome::ConnectionsExceeded => {
                self.answered(outcome, whole);
                return (!whole).then_some(self);
            }
        }
        None
    }

    /// The inner service failed.
    pub(crate) fn after_error(mut self, outcome: Outcome) {
        match outcome {
            Outcome::Unsent => self.unsent(),
            Outcome::Lost => drop(self),
            Outcome::Answered
            | Outcome::Served(_)
            | Outcome::RateExceeded
            | Outcome::QuotaExceeded(_)
            | Outcome::ConnectionsExceeded => self.answered(outcome, true),
        }
    }

    /// The response body has ended.
    pub(crate) fn ended(mut self) {
        let (gate, grant) = (self.credential.requests(), self.grant);
        match self.stage {
            Stage::Sent => gate.update_now(|requests, now| {
                requests.prove(now, grant, Duration::ZERO);
                requests.end();
            }),
            Stage::Proven => gate.update(Requests::end),
            // What was never sent has no body, and its drop gives it back.
            Stage::Granted | Stage::Over => return,
        }
        self.stage = Stage::Over;
    }

    fn answered(&mut self, outcome: Outcome, whole: bool) {
        let served = if let Outcome::Served(served) = outcome {
            served
        } else {
            Duration::ZERO
        };
        let grant = self.grant;
        let (stage, rung) = self.credential.requests().update_now(|requests, now| {
            let rung = requests.hear(now, grant, outcome);
            let stage = if whole {
                requests.prove(now, grant, served);
                requests.end();
                Stage::Over
            } else {
                match requests.answer(now, grant, served) {
                    Answered::Proven => Stage::Proven,
                    Answered::Unproven => Stage::Sent,
                }
            };
            (stage, rung)
        });
        self.stage = stage;
        match (rung, outcome) {
            (None, _) => {}
            (Some(rung), Outcome::RateExceeded) => events::refused_for_the_rate(rung),
            (Some(rung), _) => events::clean_for_long(rung),
        }
        if let Outcome::QuotaExceeded(hint) = outcome {
            let news = self.credential.refuse(hint, self.probe.is_some());
            if let Some(wait) = news {
                events::paused(wait);
            }
            // It finds the pause closed again, and changes nothing.
            self.probe = None;
        } else if let Some(probe) = self.probe.take() {
            probe.accepted();
        }
        if outcome == Outcome::ConnectionsExceeded {
            events::connections_refused();
        }
    }

    /// Nothing reached the wire after all.
    fn unsent(mut self) {
        self.stage = Stage::Granted;
    }
}

impl Permit for RequestPermit {
    type Rule = Requests;
    type Source = Arc<Credential>;

    fn gate(source: &Arc<Credential>) -> &Arc<Gate<Requests>> {
        source.requests()
    }

    fn granted(source: &Arc<Credential>, grant: Grant) -> Self {
        Self {
            credential: Arc::clone(source),
            grant,
            stage: Stage::Granted,
            probe: None,
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let gate = self.credential.requests();
        match self.stage {
            Stage::Granted => gate.update(|requests| {
                requests.withdraw();
                requests.end();
            }),
            Stage::Sent => gate.update_now(|requests, now| {
                requests.lose(now);
                requests.end();
            }),
            Stage::Proven => gate.update(Requests::end),
            Stage::Over => {}
        }
    }
}
