//! The token on the hot path.

use std::sync::Arc;

use super::{
    bearer::Bearer,
    sync::{ArcSwapOption, AtomicBool, Guard, Ordering},
};

/// Holds the token that may be sent without a look at the clock.
///
/// It is full only while a driver attends to it, who empties it at expiry: that only a driver
/// fills it is what makes the two reads right. Whoever writes holds the lock of the cold state.
pub(super) struct Slot {
    token: ArcSwapOption<Bearer>,
    /// Whether the slot is full: a hint that makes readiness cheaper than a load of the token.
    fresh: AtomicBool,
}

// === impl Slot ===

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            token: ArcSwapOption::const_empty(),
            fresh: AtomicBool::new(false),
        }
    }

    /// Relaxed is enough: this is a hint, and `load` decides.
    pub(super) fn is_fresh(&self) -> bool {
        self.fresh.load(Ordering::Relaxed)
    }

    pub(super) fn load(&self) -> Guard<Option<Arc<Bearer>>> {
        self.token.load()
    }

    pub(super) fn fill(&self, token: Arc<Bearer>) {
        self.token.store(Some(token));
        self.fresh.store(true, Ordering::Relaxed);
    }

    pub(super) fn empty(&self) {
        self.fresh.store(false, Ordering::Relaxed);
        self.token.store(None);
    }
}
