use std::sync::Arc;

use tokio::time::Instant;

use super::Outcome;
use crate::{
    Rung,
    account::{Account, Grant},
    clock,
    connection::refused,
    credential::Credential,
    events,
};

/// The permit of one sent request. Each stage is recorded in the account once, by a method or by
/// the drop.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    credential: Arc<Credential>,
    grant: Grant,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The service can count the request at any time.
    // ## Sent => (Proven | Over)
    Sent,
    /// The service has counted the request, and the body is still coming.
    // ## Proven => Over
    Proven,
    Over,
}

// === impl RequestPermit ===

impl RequestPermit {
    #[inline]
    pub(super) fn new(credential: &Arc<Credential>, grant: Grant) -> Self {
        Self {
            credential: Arc::clone(credential),
            grant,
            stage: Stage::Sent,
        }
    }

    /// Whether the request is to close its socket: the service has too many connections.
    #[inline]
    pub(super) fn closes_socket(&self) -> bool {
        self.grant.closes_socket
    }

    /// Reads an outcome, of a response whose body `is_whole` or of an error. Returns whether the body
    /// has to hold the permit. It is to be dropped otherwise.
    #[inline]
    pub(super) fn read(&mut self, outcome: Outcome, is_whole: bool) -> bool {
        match outcome {
            Outcome::Unsent => self.unsent(),
            // Neither the head nor the end of the body is a proof.
            Outcome::Lost => return false,
            outcome => self.answered(outcome, is_whole),
        }
        self.stage != Stage::Over
    }

    /// The response body has ended.
    pub(super) fn ended(mut self) {
        let (account, grant) = (&self.credential.account, self.grant);
        match self.stage {
            Stage::Sent => account.update_now(|account, now| account.prove_by_end(now, grant)),
            Stage::Proven => account.update(Account::end),
            Stage::Over => {}
        }
        self.stage = Stage::Over;
    }

    /// The request never reached the wire.
    pub(super) fn unsent(&mut self) {
        let grant = self.grant;
        self.credential
            .account
            .update(|account| account.unsend(grant));
        self.stage = Stage::Over;
    }

    #[inline]
    fn answered(&mut self, outcome: Outcome, is_whole: bool) {
        let grant = self.grant;
        // Before the lock, which is then held for half as long.
        let now = clock::now();
        let account = &self.credential.account;
        let answer = account.update(|account| account.answer(now, grant, outcome, is_whole));
        if is_whole {
            self.stage = Stage::Over;
        } else if answer.proven {
            self.stage = Stage::Proven;
        }
        if answer.rung.is_some() || outcome != Outcome::Answered || self.credential.is_paused() {
            self.report(now, outcome, answer.rung);
        }
    }

    /// Records and logs a rare outcome, after the lock is released.
    #[cold]
    fn report(&self, now: Instant, outcome: Outcome, rung: Option<Rung>) {
        let credential = &self.credential;
        match (rung, outcome) {
            (None, Outcome::RateExceeded) => events::refused_for_the_rate(),
            (None, _) => {}
            (Some(rung), Outcome::RateExceeded) => {
                let certificate = credential.account.read(|account, _| account.certificate());
                events::stepped(rung, certificate);
            }
            (Some(rung), _) => events::clean_for_long(rung),
        }
        match outcome {
            Outcome::Answered => credential.accepted(now),
            Outcome::QuotaExceeded(hint) => {
                if let Some(wait) = credential.refused(now, hint) {
                    events::paused(wait);
                }
            }
            Outcome::ConnectionsExceeded => {
                let most = refused(&credential.connections);
                let account = &credential.account;
                account.update(|account| account.lower_in_flight(now, most));
            }
            _ => {}
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let (account, grant) = (&self.credential.account, self.grant);
        match self.stage {
            Stage::Sent => account.update_now(|account, now| {
                account.lose(now, grant);
                account.end();
            }),
            Stage::Proven => account.update(Account::end),
            Stage::Over => {}
        }
    }
}
