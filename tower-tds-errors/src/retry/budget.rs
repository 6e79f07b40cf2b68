//! The budget of retries that the services of a layer share.

use std::sync::Arc;
use std::time::Duration;

use tower::retry::budget::{Budget as _, TpsBudget};

use super::state::Costs;

/// Bounds the retries by a share of the requests. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    retries: Option<Arc<TpsBudget>>,
}

// === impl Budget ===

impl Budget {
    pub(super) fn new(retries: Option<Arc<TpsBudget>>) -> Self {
        Self { retries }
    }

    /// Records a request, which earns a share of a retry.
    #[inline]
    pub(super) fn deposit(&self) {
        if let Some(retries) = &self.retries {
            retries.deposit();
        }
    }

    /// Pays for a retry. Returns whether it is free or the budget allows it.
    pub(super) fn pay(&self, costs: Costs) -> bool {
        let retries = self.retries.as_ref().filter(|_| costs == Costs::Paid);
        retries.is_none_or(|retries| retries.withdraw())
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
