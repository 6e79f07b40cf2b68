//! One request's place inside the limits.

use std::sync::Arc;

use crate::{
    gate::{Gate, Permit},
    request::Outcome,
    requests::{Answered, Grant, Requests},
};

/// A grant. Dropping it says what is true at its stage, exactly once.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    gate: Arc<Gate<Requests>>,
    grant: Grant,
    stage: Stage,
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
    pub(crate) fn sent(&mut self) {
        self.stage = Stage::Sent;
    }

    /// The response head is there, and with it perhaps the whole response. Gives what rides on
    /// in the body, if anything does.
    pub(crate) fn after_head(mut self, outcome: Outcome, whole: bool) -> Option<Self> {
        match outcome {
            Outcome::Unsent => {
                self.unsent();
                None
            }
            Outcome::Answered | Outcome::Lost if whole => {
                self.ended();
                None
            }
            Outcome::Answered => {
                let (stage, grant) = (&mut self.stage, self.grant);
                self.gate.update_now(|requests, now| {
                    if requests.answer(now, grant) == Answered::Proven {
                        *stage = Stage::Proven;
                    }
                });
                Some(self)
            }
            // The head proves nothing; the end of the body will.
            Outcome::Lost => Some(self),
        }
    }

    /// The inner service failed.
    pub(crate) fn after_error(self, outcome: Outcome) {
        match outcome {
            Outcome::Answered => self.ended(),
            Outcome::Unsent => self.unsent(),
            Outcome::Lost => drop(self),
        }
    }

    /// The response body has ended.
    pub(crate) fn ended(mut self) {
        match self.stage {
            Stage::Sent => self.gate.update_now(|requests, now| {
                requests.prove(now, self.grant);
                requests.end();
            }),
            Stage::Proven => self.gate.update(Requests::end),
            // What was never sent has no body, and its drop gives it back.
            Stage::Granted | Stage::Over => return,
        }
        self.stage = Stage::Over;
    }

    /// Nothing reached the wire after all.
    fn unsent(mut self) {
        self.stage = Stage::Granted;
    }
}

impl Permit for RequestPermit {
    type Rule = Requests;

    fn granted(gate: &Arc<Gate<Requests>>, grant: Grant) -> Self {
        Self {
            gate: Arc::clone(gate),
            grant,
            stage: Stage::Granted,
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        match self.stage {
            Stage::Granted => self.gate.update(|requests| {
                requests.withdraw();
                requests.end();
            }),
            Stage::Sent => self.gate.update_now(|requests, now| {
                requests.lose(now);
                requests.end();
            }),
            Stage::Proven => self.gate.update(Requests::end),
            Stage::Over => {}
        }
    }
}
