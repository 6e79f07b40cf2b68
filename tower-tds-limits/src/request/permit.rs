//! One request's permit: what it tells the account, exactly once.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    Rung,
    account::{Account, Grant},
    clock,
    connection::refused,
    credential::{Credential, Probe},
    events,
    queue::{Line, Permit, Queue, Waiter},
    request::Outcome,
};

/// A grant. Dropping it says what is true at its stage.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    credential: Arc<Credential>,
    grant: Grant,
    stage: Stage,
    /// Whether this request tries if a pause is over.
    tries: bool,
}

/// Waits for a moment to send.
pub(crate) struct Moment(Box<Waiter<Account>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Granted and not sent: nothing can have been counted.
    // ## Granted => (Waiting | Sent | Over)
    Granted,
    /// Called too late for its moment, and waiting for another.
    // ## Waiting => (Sent | Over)
    Waiting,
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
    /// The request is about to be sent, at once or when a moment is there that must be waited for.
    #[inline]
    pub(crate) fn send(&mut self, probe: Option<Probe>) -> Option<Moment> {
        if let Some(probe) = probe {
            probe.hand_over();
            self.tries = true;
        }
        let queue = self.credential.account();
        match queue.update(|account| account.send(self.grant)) {
            Some(grant) => {
                self.grant = grant;
                self.stage = Stage::Sent;
                None
            }
            None => {
                self.stage = Stage::Waiting;
                let waiter = Waiter::new(Arc::clone(queue), Line::Sender, None);
                Some(Moment(Box::new(waiter)))
            }
        }
    }

    /// Waits until it may be sent.
    pub(crate) fn poll_send(&mut self, moment: &mut Moment, cx: &mut Context<'_>) -> Poll<()> {
        moment.0.poll_pass(cx).map(|passed| {
            // This wait has no bound, so that it never fails.
            if let Ok(grant) = passed {
                self.grant = grant;
                self.stage = Stage::Sent;
            }
        })
    }

    /// The response head is there, and with it perhaps the whole response. Says whether the body
    /// has anything left to hold.
    pub(crate) fn after_head(&mut self, outcome: Outcome, whole: bool) -> bool {
        if outcome == Outcome::Unsent {
            self.unsent();
            return false;
        }
        if is_lost(outcome) {
            // Whoever reads it so does not take it for a proof, nor its body's end.
            self.lost(outcome);
            return false;
        }
        self.answered(outcome, whole);
        !whole
    }

    /// The inner service failed.
    pub(crate) fn after_error(mut self, outcome: Outcome) {
        if outcome == Outcome::Unsent {
            self.unsent();
        } else if is_lost(outcome) {
            self.lost(outcome);
        } else {
            self.answered(outcome, true);
        }
    }

    /// The response body has ended.
    pub(crate) fn ended(&mut self) {
        let (queue, grant) = (self.credential.account(), self.grant);
        match self.stage {
            Stage::Sent => {
                let now = clock::now();
                queue.update(|account| account.prove_by_end(now, grant));
            }
            Stage::Proven => queue.update(Account::end),
            // What was never sent has no body, and its drop gives it back.
            Stage::Granted | Stage::Waiting | Stage::Over => return,
        }
        self.over();
    }

    fn answered(&mut self, outcome: Outcome, whole: bool) {
        let grant = self.grant;
        // Before the lock, which is then held for half as long.
        let now = clock::now();
        let queue = self.credential.account();
        let answer = queue.update(|account| account.answer(now, grant, outcome, whole));
        if whole {
            self.over();
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
            (None, Outcome::RateExceeded) => events::refused_for_the_rate(),
            (None, _) => {}
            (Some(rung), Outcome::RateExceeded) => {
                let queue = self.credential.account();
                let certificate = queue.read(|account| account.certificate());
                events::stricter(rung, certificate);
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
            let about_others = matches!(
                outcome,
                Outcome::RateExceeded | Outcome::GatewayFailed | Outcome::GatewayTimedOut
            );
            if about_others {
                self.credential.untried();
            } else {
                self.credential.accept();
            }
        }
    }

    /// Nothing reached the wire after all.
    fn unsent(&mut self) {
        if self.stage == Stage::Sent {
            let grant = self.grant;
            self.credential.account().update(|account| {
                account.unsend(grant);
                account.end();
            });
            self.over();
        }
    }

    /// No answer will come.
    fn lost(&mut self, outcome: Outcome) {
        let grant = self.grant;
        let now = clock::now();
        self.credential.account().update(|account| {
            account.lose(now, grant, outcome);
            account.end();
        });
        self.over();
    }

    fn over(&mut self) {
        self.stage = Stage::Over;
    }
}

impl Permit for RequestPermit {
    type Limit = Account;
    type Source = Arc<Credential>;

    fn queue(source: &Arc<Credential>) -> &Arc<Queue<Account>> {
        source.account()
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
        let grant = self.grant;
        let queue = self.credential.account();
        match self.stage {
            Stage::Granted => queue.update(|account| {
                account.withdraw(grant);
                account.end();
            }),
            Stage::Waiting => {
                // An inner service that sends in `call` itself has sent it.
                self.grant = queue.update(Account::send_at_once);
                self.lost(Outcome::Lost);
            }
            Stage::Sent => self.lost(Outcome::Lost),
            Stage::Proven => queue.update(Account::end),
            Stage::Over => {}
        }
    }
}

fn is_lost(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Lost | Outcome::Closed)
}
