//! One request's place inside the limits.

use std::{mem, sync::Arc};

use crate::{
    Rung, clock,
    connection::refused,
    credential::{Credential, Probe},
    events,
    gate::{Gate, Line, Permit},
    request::Outcome,
    requests::{Grant, Requests},
};

/// A grant. Dropping it says what is true at its stage, exactly once.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    credential: Arc<Credential>,
    grant: Grant,
    stage: Stage,
    /// Whether this request tries if a pause is over.
    tries: bool,
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
    #[inline]
    pub(crate) fn sent(&mut self, probe: Option<Probe>) {
        self.stage = Stage::Sent;
        if let Some(probe) = probe {
            probe.hand_over();
            self.tries = true;
        }
    }

    /// The response head is there, and with it perhaps the whole response. Says whether the body
    /// has anything left to hold.
    pub(crate) fn after_head(&mut self, outcome: Outcome, whole: bool) -> bool {
        match outcome {
            Outcome::Unsent => self.unsent(),
            // The head proves nothing; the end of the body will.
            Outcome::Lost if !whole => return true,
            Outcome::Lost => self.ended(),
            Outcome::Answered
            | Outcome::Served(_)
            | Outcome::RateExceeded
            | Outcome::QuotaExceeded(_)
            | Outcome::ConnectionsExceeded => {
                self.answered(outcome, whole);
                return !whole;
            }
        }
        false
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
    pub(crate) fn ended(&mut self) {
        let (gate, grant) = (self.credential.requests(), self.grant);
        match self.stage {
            Stage::Sent => {
                let now = clock::now();
                gate.update(|requests| requests.prove_by_end(now, grant));
            }
            Stage::Proven => gate.update(Requests::end),
            // What was never sent has no body, and its drop gives it back.
            Stage::Granted | Stage::Over => return,
        }
        self.stage = Stage::Over;
    }

    fn answered(&mut self, outcome: Outcome, whole: bool) {
        let grant = self.grant;
        // Before the lock, which is then held for half as long.
        let now = clock::now();
        let gate = self.credential.requests();
        let answer = gate.update(|requests| requests.answer(now, grant, outcome, whole));
        if whole {
            self.stage = Stage::Over;
        } else if answer.proven {
            self.stage = Stage::Proven;
        }
        if answer.rung.is_some() || outcome != Outcome::Answered || self.tries {
            self.tell(outcome, answer.rung);
        }
    }

    /// What is rare about an answer, told after the lock is released.
    #[cold]
    fn tell(&mut self, outcome: Outcome, rung: Option<Rung>) {
        match (rung, outcome) {
            (None, _) => {}
            (Some(rung), Outcome::RateExceeded) => {
                let requests = self.credential.requests();
                let certificate = requests.read(|requests, _| requests.certificate());
                events::refused_for_the_rate(rung, certificate);
            }
            (Some(rung), _) => events::clean_for_long(rung),
        }
        if outcome == Outcome::ConnectionsExceeded {
            events::connections_refused();
            refused(self.credential.connections());
        }
        let tried = mem::take(&mut self.tries);
        if let Outcome::QuotaExceeded(hint) = outcome {
            if let Some(wait) = self.credential.refuse(hint, tried) {
                events::paused(wait);
            }
        } else if tried {
            self.credential.accept();
        }
    }

    /// Nothing reached the wire after all.
    fn unsent(&mut self) {
        self.stage = Stage::Granted;
    }
}

impl Permit for RequestPermit {
    type Rule = Requests;
    type Source = Arc<Credential>;

    fn gate(source: &Arc<Credential>) -> &Arc<Gate<Requests>> {
        source.requests()
    }

    #[inline]
    fn line(source: &Arc<Credential>) -> Line {
        source.line()
    }

    #[inline]
    fn granted(source: &Arc<Credential>, grant: Grant) -> Self {
        Self {
            credential: Arc::clone(source),
            grant,
            stage: Stage::Granted,
            tries: false,
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        if self.tries {
            self.credential.untried();
        }
        let gate = self.credential.requests();
        match self.stage {
            Stage::Granted => gate.update(|requests| {
                requests.withdraw();
                requests.end();
            }),
            Stage::Sent => {
                let now = clock::now();
                gate.update(|requests| {
                    requests.lose(now);
                    requests.end();
                });
            }
            Stage::Proven => gate.update(Requests::end),
            Stage::Over => {}
        }
    }
}
