//! The budget of retries that the services of a layer share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tower::retry::budget::{Budget as _, TpsBudget};

use super::state::Costs;

/// Bounds the retries by a share of the requests. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    retries: Option<Arc<TpsBudget>>,
    /// Whether the last cure was tried in vain.
    cures_fail: Arc<AtomicBool>,
}

// === impl Budget ===

impl Budget {
    pub(super) fn new(retries: Option<Arc<TpsBudget>>) -> Self {
        Self {
            retries,
            cures_fail: Arc::default(),
        }
    }

    /// Notes a request, which earns a share of a retry.
    #[inline]
    pub(super) fn deposit(&self) {
        if let Some(retries) = &self.retries {
            retries.deposit();
        }
    }

    /// Whether a retry is free or paid for.
    ///
    /// Cures are free while they help: all calls whose token was revoked are cured, however many they are. A cure
    /// that failed makes the next ones cost as much as any retry, so that a service that refuses every token is
    /// sent its load and the budget.
    pub(super) fn pay(&self, costs: Costs) -> bool {
        let is_cure = costs == Costs::Cure && !self.cures_fail.load(Ordering::Relaxed);
        let is_free = costs == Costs::Nothing || is_cure;
        let retries = self.retries.as_ref().filter(|_| !is_free);
        retries.is_none_or(|retries| retries.withdraw())
    }

    /// Notes whether a cure has helped.
    pub(super) fn note_cure(&self, helped: bool) {
        // Relaxed, like the load: the flag orders no other memory, and a call that misses it is one free retry.
        self.cures_fail.store(!helped, Ordering::Relaxed);
    }
}

/// Ten retries for a hundred requests, the SRE book's share for a client ("Handling Overload": 10 %), and one a
/// second, both counted over ten seconds.
impl Default for Budget {
    fn default() -> Self {
        let retries = TpsBudget::new(Duration::from_secs(10), 1, 0.1);
        Self::new(Some(Arc::new(retries)))
    }
}
