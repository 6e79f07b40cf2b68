//! One call of tower's retry layer: its attempts so far, and whether another follows.

use std::time::Duration;

use fastrand::Rng;
use http::Request;

use super::paid::Paid;
use super::wait::Wait;
use crate::clock;
use crate::error::Error;
use crate::error::facts::parts;
use crate::retry::policy::Policy;
use crate::retry::verdict::{Again, Cured, Failed, Idempotent, Reuse, Spare, Way, verdict};
use crate::stop::Stop;

/// A clone is of a call that has not begun.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// How many attempts were made, and how many of them count.
    made: u32,
    counted: u32,
    waited: Duration,
    cured: Cured,
    reuse: Reuse,
    paid: Paid,
}

// === impl Call ===

impl Call {
    pub(super) fn new() -> Self {
        Self {
            made: 1,
            counted: 1,
            waited: Duration::ZERO,
            cured: Cured::No,
            reuse: Reuse::Open,
            paid: Paid::default(),
        }
    }

    /// The copy from which the next attempt is made, and with it the notice that one begins.
    pub(super) fn copy<B: Clone>(&mut self, request: &Request<B>, policy: &Policy) -> Request<B> {
        // Tower asks before each attempt, right before it calls.
        self.paid.begin();
        if let (1, Some(budget)) = (self.made, &policy.budget) {
            budget.deposit(request.uri());
        }
        request.clone()
    }

    /// Notes that the attempt succeeded: there is nothing to wait for.
    pub(super) fn succeeded(&mut self) -> Option<Wait> {
        self.paid.succeeded();
        None
    }

    /// Notes on the error how it went, and waits or stops.
    pub(super) fn judge<B>(
        &mut self,
        request: &Request<B>,
        error: &mut Error,
        policy: &Policy,
    ) -> Option<Wait> {
        let settled = error.stopped_because();
        if settled.is_some_and(|stop| stop != Stop::Vetoed) {
            return None;
        }
        error.facts_mut().attempts = self.made;
        let again = settled.map_or_else(|| self.decide(request, error, policy), Err);
        match again {
            Ok(again) => {
                self.made = self.made.saturating_add(1);
                if again.way == Way::Reused {
                    self.reuse = Reuse::Spent;
                } else {
                    self.counted = self.counted.saturating_add(1);
                }
                if error.advice().is_once() {
                    self.cured = Cured::Yes;
                }
                self.waited = again.wait;
                Some(Wait::new(again.wait))
            }
            Err(stop) => {
                error.facts_mut().stop = Some(stop);
                None
            }
        }
    }

    fn decide<B>(
        &mut self,
        request: &Request<B>,
        error: &Error,
        policy: &Policy,
    ) -> Result<Again, Stop> {
        let method = request.method();
        let failed = Failed {
            kind: error.kind(),
            advice: error.advice(),
            sent: error.sent(),
            hint: error.retry_after(),
            waited: self.waited,
            attempt: self.counted,
            cured: self.cured,
            reuse: if method.is_safe() {
                self.reuse
            } else {
                Reuse::Spent
            },
            idempotent: Idempotent::of(method, request.extensions()),
            spare: Spare::Kept,
            left: None,
        };
        let again = verdict(&failed, policy, &mut Rng::new())?;
        if let (Way::Reused | Way::Paid, Some(budget)) = (again.way, &policy.budget) {
            let price = budget.withdraw_at(parts(request.uri()), clock::now());
            self.paid.owe(price.ok_or(Stop::Budget)?, again.way);
        }
        Ok(again)
    }
}
