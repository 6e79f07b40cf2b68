//! What came before the attempt that is under way. The first failure makes it; most calls have none.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use super::budget::{Account, Withdrawal};
use super::verdict::{Again, Cured, Reuse, Way};
use crate::error::Error;
use crate::guard::bodies::Freed;
use crate::kind::Kind;

pub(super) struct Past<S> {
    /// What makes the retries: one instance for all of them. After each it holds nothing.
    pub(super) service: Option<S>,
    /// How many attempts were made.
    pub(super) attempts: u32,
    /// How many of them count.
    pub(super) counted: u32,
    pub(super) cured: Cured,
    pub(super) reuse: Reuse,
    /// What the retry that is to come costs.
    pub(super) price: Option<Withdrawal>,
    /// Where the price of the one that is under way goes if it succeeds.
    lent: Option<Account>,
    /// What the last failure was answered by.
    way: Way,
    pub(super) rng: Rng,
    /// The end of one of our bodies, while that is waited for.
    pub(super) freed: Option<Freed>,
    failed_at: Option<Instant>,
    /// How long to wait before the retry.
    pub(super) wait: Duration,
    /// The failure that is being waited on.
    pub(super) failure: Option<Error>,
    pub(super) slept: Duration,
    /// The kinds of the failures before the last, the oldest first.
    pub(super) kinds: Vec<Kind>,
}

// === impl Past ===

impl<S> Past<S> {
    pub(super) fn new(rng: Rng, reuse: Reuse) -> Self {
        Self {
            service: None,
            attempts: 1,
            counted: 1,
            cured: Cured::No,
            reuse,
            price: None,
            lent: None,
            way: Way::Paid,
            rng,
            freed: None,
            failed_at: None,
            wait: Duration::ZERO,
            failure: None,
            slept: Duration::ZERO,
            kinds: Vec::new(),
        }
    }

    /// Notes a failure that another attempt follows.
    pub(super) fn push(&mut self, error: Error, again: Again, now: Instant) {
        if error.advice().is_once() {
            self.cured = Cured::Yes;
        }
        if again.way == Way::Reused {
            self.reuse = Reuse::Spent;
        }
        if self.kinds.len() < MOST_KINDS {
            self.kinds.push(error.kind());
        }
        self.failed_at = Some(now);
        self.wait = again.wait;
        self.way = again.way;
        self.failure = Some(error);
    }

    /// Takes back the last failure: it is the one that the call ends with.
    pub(super) fn pop(&mut self) {
        if usize::try_from(self.attempts) == Ok(self.kinds.len()) {
            self.kinds.pop();
        }
    }

    /// Notes that the wait begins, after that for a body, and gives it.
    pub(super) fn wait_at(&mut self, now: Instant) -> Duration {
        self.freed = None;
        let since = self.failed_at.unwrap_or(now);
        let slept = self
            .slept
            .saturating_add(now.saturating_duration_since(since));
        self.slept = slept.saturating_add(self.wait);
        self.wait
    }

    /// Notes that the retry is sent.
    pub(super) fn sent(&mut self) {
        let account = self.price.take().and_then(Withdrawal::spend);
        self.attempts = self.attempts.saturating_add(1);
        if self.way != Way::Reused {
            self.counted = self.counted.saturating_add(1);
        }
        self.lent = account.filter(|_| self.way == Way::Reused);
    }

    /// Notes that it succeeded.
    pub(super) fn succeeded(&mut self) {
        if let Some(account) = self.lent.take() {
            account.refund();
        }
    }
}

/// More attempts than anybody makes; the number of all is in the error too.
const MOST_KINDS: usize = 16;
