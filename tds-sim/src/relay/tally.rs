//! The count of a relay's connections.

use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// The counts of one relay.
#[derive(Debug, Default)]
pub(super) struct Tally {
    counts: Mutex<Counts>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) accepted: u64,
    pub(super) open: u64,
    pub(super) peak: u64,
}

/// A connection that counts as open until this is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    tally: Arc<Tally>,
    number: u64,
}

// === impl Tally ===

impl Tally {
    pub(super) fn counts(&self) -> Counts {
        *lock(&self.counts)
    }

    /// Counts a connection that has been accepted.
    pub(super) fn count(self: &Arc<Self>) -> Counted {
        let mut counts = lock(&self.counts);
        let number = counts.accepted;
        counts.accepted = counts.accepted.saturating_add(1);
        counts.open = counts.open.saturating_add(1);
        counts.peak = counts.peak.max(counts.open);
        drop(counts);
        Counted {
            tally: Arc::clone(self),
            number,
        }
    }
}

// === impl Counted ===

impl Counted {
    /// How many were accepted before it.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = lock(&self.tally.counts);
        counts.open = counts.open.saturating_sub(1);
    }
}
