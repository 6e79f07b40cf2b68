//! The pages of the ledger: the newest arrivals, and the sums over all.

use std::{
    collections::{HashSet, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use crate::ledger::{Arrival, Summary};

/// What is written down, without a clock of its own.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) arrivals: VecDeque<Arrival>,
    kept: usize,
    /// The arrivals of the last second, for the largest second.
    recent: VecDeque<Duration>,
    /// Targets seen before, so that a million calls to one URL keep one copy of it.
    targets: HashSet<Arc<str>>,
    pub(super) sums: Summary,
}

/// The number of an arrival, counted from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number(u64);

// === impl Book ===

impl Book {
    pub(super) fn new(kept: usize) -> Self {
        Self {
            arrivals: VecDeque::new(),
            kept: kept.max(1),
            recent: VecDeque::new(),
            targets: HashSet::new(),
            sums: Summary::default(),
        }
    }

    /// Notes a call that came at `at`, no earlier than the ones before.
    pub(super) fn arrive(&mut self, at: Duration, peer: SocketAddr, target: &str) -> Number {
        let number = Number(self.sums.data_calls);
        let sums = &mut self.sums;
        sums.data_calls = sums.data_calls.saturating_add(1);
        sums.in_progress = sums.in_progress.saturating_add(1);

        // The half-open second that ends with this arrival: (at - 1 s, at]. Every half-open second
        // holds no more than the one that ends with its last arrival, so the maximum is exact.
        while self
            .recent
            .front()
            .is_some_and(|first| first.saturating_add(SECOND) <= at)
        {
            self.recent.pop_front();
        }
        self.recent.push_back(at);
        sums.largest_second = sums.largest_second.max(count(self.recent.len()));

        if self.arrivals.len() >= self.kept {
            self.arrivals.pop_front();
            sums.arrivals_forgotten = sums.arrivals_forgotten.saturating_add(1);
        }
        let target = self.intern(target);
        self.arrivals.push_back(Arrival::new(at, peer, target));
        number
    }

    fn intern(&mut self, target: &str) -> Arc<str> {
        if let Some(known) = self.targets.get(target) {
            return Arc::clone(known);
        }
        let target: Arc<str> = target.into();
        if self.targets.len() < TARGETS_SHARED {
            self.targets.insert(Arc::clone(&target));
        }
        target
    }

    /// Changes an arrival, unless it has been forgotten.
    pub(super) fn amend(&mut self, number: Number, change: impl FnOnce(&mut Arrival)) {
        let index = number.0.checked_sub(self.sums.arrivals_forgotten);
        let index = index.and_then(|index| usize::try_from(index).ok());
        if let Some(arrival) = index.and_then(|index| self.arrivals.get_mut(index)) {
            change(arrival);
        }
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// The interval of "50 requests per second" in the contract's table of limits.
const SECOND: Duration = Duration::from_secs(1);

/// How many distinct targets are shared between arrivals; later ones get a copy each.
const TARGETS_SHARED: usize = 4096;
