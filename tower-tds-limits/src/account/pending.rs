//! Requests that no proof will come of: each is counted, if at all, within a time that is stated.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use super::Grant;
use crate::clock::Tick;

/// When each of them can no longer be counted.
#[derive(Debug)]
pub(super) struct Pending {
    /// The first of `settled`, which is all that is looked at as a rule.
    next: Tick,
    settled: BinaryHeap<Reverse<Settled>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settled {
    pub(super) at: Tick,
    pub(super) grant: Grant,
}

// === impl Pending ===

impl Pending {
    pub(super) const fn new() -> Self {
        Self {
            next: Tick::NEVER,
            settled: BinaryHeap::new(),
        }
    }

    /// One can be counted until `at`.
    pub(super) fn add(&mut self, at: Tick, grant: Grant) {
        self.settled.push(Reverse(Settled { at, grant }));
        self.next = self.next.min(at);
    }

    /// When the next of them can no longer be counted.
    pub(super) const fn next(&self) -> Tick {
        self.next
    }

    /// Takes one out that can no longer be counted at `now`.
    #[cold]
    pub(super) fn take_by(&mut self, now: Tick) -> Option<Settled> {
        let due = self
            .settled
            .peek()
            .is_some_and(|Reverse(next)| next.at <= now);
        let settled = if due { self.settled.pop() } else { None };
        let next = self.settled.peek();
        self.next = next.map_or(Tick::NEVER, |Reverse(next)| next.at);
        settled.map(|Reverse(settled)| settled)
    }
}

// === impl Settled ===

impl PartialOrd for Settled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Settled {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |settled: &Self| (settled.at, settled.grant.not_before());
        key(self).cmp(&key(other))
    }
}
