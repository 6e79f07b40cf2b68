//! What the handles and the driver share: the slot, and the cold state behind it.

use std::sync::{Arc, PoisonError};

use super::{
    bearer::Bearer,
    cold::Cold,
    grant::{Grant, Issued},
    settings::Settings,
    slot::Slot,
    sync::{Guard, Mutex, MutexGuard},
};
use crate::{Event, Health, budget::Account, moment::Moment};

/// One token, one driver, any number of readers.
pub(super) struct Shared {
    pub(super) slot: Slot,
    /// Everything else. Whoever writes the slot holds this lock; it is never held across an
    /// `.await`, nor while a task is spawned or a waiter woken.
    cold: Mutex<Cold>,
    pub(super) grant: Arc<dyn Grant>,
    pub(super) settings: Settings,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(grant: Arc<dyn Grant>, settings: Settings) -> Self {
        Self {
            slot: Slot::new(),
            cold: Mutex::new(Cold::new(Account::new(settings.budget))),
            grant,
            settings,
        }
    }

    #[inline]
    pub(super) fn current(&self) -> u64 {
        self.slot.current()
    }

    pub(super) fn attended(&self) -> Guard<Option<Arc<Bearer>>> {
        self.slot.load()
    }

    pub(super) fn unattended(&self) -> Option<Arc<Bearer>> {
        let now = self.now();
        self.lock().fresh_at(now).cloned()
    }

    /// Whether a token from the store is better than what is here: no dead one, and a later one.
    pub(super) fn wants(&self, issued: &Issued) -> bool {
        let now = self.now();
        self.lock().wants_at(now, issued)
    }

    pub(super) fn health(&self) -> Health {
        let now = self.now();
        self.lock().health_at(now)
    }

    pub(super) fn tell(&self, event: &Event) {
        self.settings.listener.tell(event);
    }

    pub(super) fn now(&self) -> Moment {
        self.settings.clock.now()
    }

    /// A panic under the lock leaves no half-made state, so poison is no reason to stop.
    pub(super) fn lock(&self) -> MutexGuard<'_, Cold> {
        self.cold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
