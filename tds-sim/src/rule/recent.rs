//! The instants of the last interval.

use std::{collections::VecDeque, time::Duration};

/// The instants in `(now - per, now]`, of those it was told in order.
#[derive(Debug)]
pub(super) struct Recent {
    per: Duration,
    instants: VecDeque<Duration>,
}

// === impl Recent ===

impl Recent {
    pub(super) fn new(per: Duration) -> Self {
        Self {
            per,
            instants: VecDeque::new(),
        }
    }

    /// How many instants lie in `(now - per, now]`. The older ones are forgotten.
    pub(super) fn count_at(&mut self, now: Duration) -> u32 {
        // Written with a difference because `instant + per` may overflow.
        while self
            .instants
            .front()
            .is_some_and(|instant| now.saturating_sub(*instant) >= self.per)
        {
            self.instants.pop_front();
        }
        u32::try_from(self.instants.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn push(&mut self, instant: Duration) {
        self.instants.push_back(instant);
    }

    pub(super) fn forget_oldest(&mut self) {
        self.instants.pop_front();
    }
}
