//! Requests that were sent and whose answer never came.

use std::{collections::VecDeque, time::Duration};

use crate::clock::{Tick, nanos};

/// When each of them can no longer be counted.
#[derive(Debug)]
pub(super) struct Lost {
    /// The first of `settled`, which is all that is looked at as a rule.
    next: Tick,
    /// In order.
    settled: VecDeque<Tick>,
    after: u64,
}

// === impl Lost ===

impl Lost {
    pub(super) fn new(after: Duration) -> Self {
        Self {
            next: Tick::NEVER,
            settled: VecDeque::new(),
            after: nanos(after),
        }
    }

    /// One was given up at `now`.
    pub(super) fn add(&mut self, now: Tick) {
        self.settled.push_back(now.plus(self.after));
        self.look();
    }

    /// When the next of them can no longer be counted.
    pub(super) fn next(&self) -> Option<Tick> {
        self.settled.front().copied()
    }

    /// Takes one out that can no longer be counted at `now`, and says since when.
    #[inline]
    pub(super) fn settled_by(&mut self, now: Tick) -> Option<Tick> {
        if self.next > now {
            return None;
        }
        let at = self.settled.pop_front();
        self.look();
        at
    }

    fn look(&mut self) {
        self.next = self.next().unwrap_or(Tick::NEVER);
    }
}
