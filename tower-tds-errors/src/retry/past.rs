//! What came before the attempt that is under way. The first failure makes it; most calls have none.

use std::time::Duration;

use fastrand::Rng;

use super::verdict::Cured;
use crate::error::Error;
use crate::kind::Kind;

pub(super) struct Past<S> {
    /// What makes the retries: one instance for all of them. After each it holds nothing.
    pub(super) service: Option<S>,
    /// How many attempts were made.
    pub(super) attempts: u32,
    pub(super) cured: Cured,
    pub(super) rng: Rng,
    /// The failure that is being waited on.
    pub(super) failure: Option<Error>,
    pub(super) slept: Duration,
    /// The kinds of the failures before the last, the oldest first.
    pub(super) kinds: Vec<Kind>,
}

// === impl Past ===

impl<S> Past<S> {
    pub(super) fn new(rng: Rng) -> Self {
        Self {
            service: None,
            attempts: 1,
            cured: Cured::No,
            rng,
            failure: None,
            slept: Duration::ZERO,
            kinds: Vec::new(),
        }
    }

    /// Notes a failure that another attempt follows after `wait`.
    pub(super) fn push(&mut self, error: Error, wait: Duration) {
        if self.kinds.len() < MOST_KINDS {
            self.kinds.push(error.kind());
        }
        self.slept = self.slept.saturating_add(wait);
        self.failure = Some(error);
    }
}

/// More attempts than anybody makes; the number of all is in the error too.
const MOST_KINDS: usize = 16;
