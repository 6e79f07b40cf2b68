//! The token on the hot path.

use std::sync::Arc;

use super::{
    bearer::Bearer,
    sync::{ArcSwapOption, AtomicU64, Guard, Ordering},
};

/// Holds the token that may be sent without a look at the clock.
///
/// It is full only while a driver attends to it, who empties it at expiry: that only a driver
/// fills it is what makes the two reads right. Whoever writes holds the lock of the cold state.
///
/// It stands alone on its cache lines, since all threads read it for each call: what is written
/// near it, such as the count of handles, would take it from them. 128 bytes are two lines, which
/// x86 fetches as a pair, or one of Apple's.
#[repr(align(128))]
pub(super) struct Slot {
    token: ArcSwapOption<Bearer>,
    /// The number of the token in the slot; 0 when it is empty, which is no token's number.
    ///
    /// Relaxed everywhere: it is compared with the number of a token that the reader holds
    /// already, and whoever holds none takes it from `token`, which has its own orderings.
    current: AtomicU64,
}

// === impl Slot ===

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            token: ArcSwapOption::const_empty(),
            current: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn current(&self) -> u64 {
        self.current.load(Ordering::Relaxed)
    }

    pub(super) fn load(&self) -> Guard<Option<Arc<Bearer>>> {
        self.token.load()
    }

    pub(super) fn fill(&self, token: Arc<Bearer>) {
        let generation = token.generation;
        self.token.store(Some(token));
        self.current.store(generation, Ordering::Relaxed);
    }

    pub(super) fn empty(&self) {
        self.current.store(0, Ordering::Relaxed);
        self.token.store(None);
    }
}
