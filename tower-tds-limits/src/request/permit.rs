//! One request's permit: what it tells the account, exactly once.

use std::sync::Arc;

use crate::{
    Rung,
    account::{Account, Grant},
    clock,
    connection::refused,
    credential::{Credential, Probe},
    events,
    request::Outcome,
};

/// A grant. Dropping it says what is true at its stage.
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
    /// That of a request that is sent now.
    #[inline]
    pub(super) fn sent(credential: &Arc<Credential>, grant: Grant, probe: Option<Probe>) -> Self {
        Self {
            credential: Arc::clone(credential),
            grant,
            stage: Stage::Sent,
            probe,
        }
    }

    /// The head is there, and with it perhaps the `whole` response, or an error. Says whether the body
    /// has anything left to hold.
    pub(super) fn read(&mut self, outcome: Outcome, whole: bool) -> bool {
        if outcome == Outcome::Unsent {
            self.unsent();
        } else if outcome == Outcome::Lost {
            // Neither it nor its body's end is a proof.
            self.lost();
        } else {
            self.answered(outcome, whole);
        }
        self.stage != Stage::Over
    }

    /// The response body has ended.
    pub(crate) fn ended(&mut self) {
        let (queue, grant) = (&self.credential.account, self.grant);
        match self.stage {
            Stage::Sent => {
                let now = clock::now();
                queue.update(|account| account.prove_by_end(now, grant));
            }
            Stage::Proven => queue.update(Account::end),
            Stage::Over => return,
        }
        self.stage = Stage::Over;
    }

    fn answered(&mut self, outcome: Outcome, whole: bool) {
        let grant = self.grant;
        // Before the lock, which is then held for half as long.
        let now = clock::now();
        let queue = &self.credential.account;
        let answer = queue.update(|account| account.answer(now, grant, outcome, whole));
        if whole {
            self.stage = Stage::Over;
        } else if answer.proven {
            self.stage = Stage::Proven;
        }
        if answer.rung.is_some() || outcome != Outcome::Answered || self.probe.is_some() {
            self.tell(outcome, answer.rung);
        }
    }

    /// What is rare about an answer, told after the lock is released.
    #[cold]
    fn tell(&mut self, outcome: Outcome, rung: Option<Rung>) {
        match (rung, outcome) {
            (None, Outcome::RateExceeded) => events::refused_for_the_rate(),
            (None, _) => {}
            (Some(rung), Outcome::RateExceeded) => {
                let queue = &self.credential.account;
                let certificate = queue.read(|account| account.certificate());
                events::stricter(rung, certificate);
            }
            (Some(rung), _) => events::clean_for_long(rung),
        }
        if outcome == Outcome::ConnectionsExceeded {
            refused(&self.credential.connections);
            self.credential.account.update_now(Account::silence);
        }
        let tried = self.probe.take().map(Probe::answered);
        if let Outcome::QuotaExceeded(hint) = outcome {
            if let Some(wait) = self.credential.refuse(hint, tried) {
                events::paused(wait);
            }
        } else if let Some(tried) = tried {
            let about_others = matches!(
                outcome,
                Outcome::RateExceeded
                    | Outcome::ConnectionsExceeded
                    | Outcome::GatewayFailed
                    | Outcome::GatewayTimedOut
            );
            if about_others {
                self.credential.untried(tried);
            } else {
                self.credential.accept(tried);
            }
        }
    }

    /// Nothing reached the wire after all.
    fn unsent(&mut self) {
        let grant = self.grant;
        let queue = &self.credential.account;
        queue.update(|account| account.unsend(grant));
        self.stage = Stage::Over;
    }

    /// No answer will come.
    fn lost(&mut self) {
        let grant = self.grant;
        let now = clock::now();
        self.credential.account.update(|account| {
            account.lose(now, grant);
            account.end();
        });
        self.stage = Stage::Over;
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        match self.stage {
            Stage::Sent => self.lost(),
            Stage::Proven => self.credential.account.update(Account::end),
            Stage::Over => {}
        }
    }
}
