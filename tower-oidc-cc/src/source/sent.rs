//! A call on its way: numbers alone, by which its answer finds back to the token.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

#[cfg(feature = "claims")]
use http::HeaderValue;

use super::shared::{Outcome, Shared};
use crate::state::{Call, Complaint};

/// What a call remembers of its token until it is answered.
///
/// Nearly all answers say what is known already, so it counts as nobody's user: a call neither
/// writes to a count that threads share nor has anything to drop. The few answers with news find
/// their source by its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    source: Number,
    pub(crate) generation: u64,
    call: Call,
    /// Whether calls of its group were accepted with this token before it was made.
    known: bool,
}

/// The number of a source; no two have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(u64);

// === impl Sent ===

impl Sent {
    #[inline]
    pub(super) fn new(source: Number, generation: u64, call: Call, known: bool) -> Self {
        Self {
            source,
            generation,
            call,
            known,
        }
    }

    /// The token was accepted.
    #[inline]
    pub(crate) fn accept(self) {
        if !self.known {
            self.report();
        }
    }

    /// Something is said against the token; `None` if its last handle is gone.
    pub(crate) fn complain(self, complaint: impl FnOnce(Call) -> Complaint) -> Option<Outcome> {
        let shared = self.source.find()?;
        Some(shared.complain(self.generation, complaint(self.call)))
    }

    /// The header that was sent, while it is here.
    #[cfg(feature = "claims")]
    pub(crate) fn header(self) -> Option<HeaderValue> {
        self.source.find()?.header(self.generation)
    }

    #[cold]
    fn report(self) {
        if let Some(shared) = self.source.find() {
            shared.accept(self.generation, self.call);
        }
    }
}

// === impl Number ===

impl Number {
    /// A new one, for the source that this will be.
    pub(super) fn enrol(shared: &Weak<Shared>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the numbers need to differ and nothing else.
        let number = Self(NEXT.fetch_add(1, Ordering::Relaxed));
        sources().insert(number, Weak::clone(shared));
        number
    }

    /// Its source is gone.
    pub(super) fn strike(self) {
        sources().remove(&self);
    }

    fn find(self) -> Option<Arc<Shared>> {
        // A source that is dropped takes this lock itself, so none is dropped under it.
        sources().get(&self).and_then(Weak::upgrade)
    }
}

/// Guards the list of those who have a handle. Nothing else is done under it.
fn sources() -> MutexGuard<'static, BTreeMap<Number, Weak<Shared>>> {
    static SOURCES: Mutex<BTreeMap<Number, Weak<Shared>>> = Mutex::new(BTreeMap::new());
    SOURCES.lock().unwrap_or_else(PoisonError::into_inner)
}
