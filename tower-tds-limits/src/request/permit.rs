//! One request's permit: what it tells the account, exactly once.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::HeaderMap;

use crate::{
    AskLease, Ended, Lease, LeaseFuture, Rung, WaitCause,
    account::{Account, Grant},
    clock,
    connection::refused,
    credential::{Credential, Probe},
    events,
    queue::Line,
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
    /// There while a lease is held, too.
    leased: Option<Box<Leased>>,
}

#[derive(Debug)]
struct Leased {
    lease: Box<dyn Lease>,
    /// What the head said, where the body's end is the proof.
    heard: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// To be sent as soon as it has a lease, too.
    // ## Leasing => (Sent | Over)
    Leasing,
    /// On its way: it can be counted at any time.
    // ## Sent => (Leasing | Proven | Over)
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
            leased: None,
        }
    }

    /// Asks for the lease that the request waits for, if the limits are kept together with others.
    #[inline]
    pub(super) fn ask_lease(&mut self, max_wait: Option<Duration>) -> Option<LeaseFuture> {
        let leases = self.credential.leases.as_ref()?;
        self.stage = Stage::Leasing;
        self.credential.account.update(Account::asks_lease);
        Some(leases.lease(AskLease {
            first_in_line: self.credential.line == Line::Front,
            max_wait,
        }))
    }

    pub(super) fn leased(&mut self, lease: Box<dyn Lease>, waited: Duration) {
        self.stage = Stage::Sent;
        let queue = &self.credential.account;
        queue.update(Account::asked_lease);
        queue.waited(WaitCause::Lease, waited);
        WaitCause::Lease.tell(waited);
        self.leased = Some(Box::new(Leased {
            lease,
            heard: Outcome::Answered,
        }));
    }

    /// Whether nothing has begun, while its lease was waited for, in which it is not to be sent.
    pub(super) fn may_be_sent(&self) -> bool {
        let now = clock::now();
        let silent = |account: &mut Account| account.silent_until(now).is_some();
        let must_pause = self.credential.must_pause(self.probe.as_ref());
        !must_pause && !self.credential.account.read(silent)
    }

    /// Ready when the request has to end, since its lease could not be kept.
    #[inline]
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.leased {
            Some(leased) => leased.lease.poll_over(cx),
            None => Poll::Pending,
        }
    }

    #[inline]
    fn end_lease(&mut self, ended: impl FnOnce(Outcome) -> Ended) {
        if let Some(leased) = self.leased.take() {
            leased.lease.end(ended(leased.heard));
        }
    }

    /// What is read of an answer, with the service's own time where the limits have it read.
    #[inline]
    pub(super) fn served(&self, outcome: Outcome, headers: &HeaderMap) -> Outcome {
        match self.credential.limits.served {
            Some(served) if outcome == Outcome::Answered => {
                served.read(headers).map_or(outcome, Outcome::Served)
            }
            _ => outcome,
        }
    }

    /// The head is there, and with it perhaps the `whole` response, or an error. Says whether the body
    /// has anything left to hold.
    pub(super) fn read(&mut self, outcome: Outcome, whole: bool) -> bool {
        if outcome == Outcome::Unsent {
            self.unsent();
        } else if matches!(outcome, Outcome::Lost | Outcome::Closed) {
            // Whoever reads it so does not take it for a proof, nor its body's end.
            self.lost(outcome);
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
                self.end_lease(Ended::Proven);
            }
            Stage::Proven => queue.update(Account::end),
            // What was never sent has no body, and its drop gives it back.
            Stage::Leasing | Stage::Over => return,
        }
        self.stage = Stage::Over;
    }

    fn answered(&mut self, outcome: Outcome, whole: bool) {
        let grant = self.grant;
        // Before the lock, which is then held for half as long.
        let now = clock::now();
        let queue = &self.credential.account;
        let answer = queue.update(|account| account.answer(now, grant, outcome, whole));
        if let Some(leased) = &mut self.leased {
            leased.heard = outcome;
            if answer.proven {
                self.end_lease(|outcome| match answer.lag {
                    0 => Ended::Proven(outcome),
                    lag => Ended::Within(Duration::from_nanos(lag)),
                });
            }
        }
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
            events::connections_refused();
            if refused(&self.credential.connections) {
                let account = &self.credential.account;
                account.update_now(Account::silence);
            }
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
        self.end_lease(|_| Ended::Unsent);
        let grant = self.grant;
        let queue = &self.credential.account;
        queue.update(|account| account.unsend(grant));
        self.stage = Stage::Over;
    }

    /// No answer will come.
    fn lost(&mut self, outcome: Outcome) {
        let grant = self.grant;
        let now = clock::now();
        let within = self.credential.account.update(|account| {
            let within = account.lose(now, grant, outcome);
            account.end();
            within
        });
        self.end_lease(|_| Ended::Within(Duration::from_nanos(within)));
        self.stage = Stage::Over;
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let grant = self.grant;
        let queue = &self.credential.account;
        match self.stage {
            Stage::Leasing => queue.update(|account| {
                account.asked_lease();
                account.unsend(grant);
            }),
            Stage::Sent => self.lost(Outcome::Lost),
            Stage::Proven => queue.update(Account::end),
            Stage::Over => {}
        }
    }
}
