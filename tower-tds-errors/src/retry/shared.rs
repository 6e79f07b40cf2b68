//! What the clones of a retry service share, and with them the futures.

use std::sync::{Mutex, PoisonError};

use super::policy::Policy;

/// One count of references is all that a call takes of its service.
#[derive(Debug)]
pub(super) struct Shared<S, P> {
    pub(super) policy: Policy,
    pub(super) replay: P,
    /// Guards the service as it was layered, for as long as it is cloned. A call that fails takes
    /// its next instance from here, and one that does not fail clones nothing.
    template: Mutex<S>,
}

// === impl Shared ===

impl<S: Clone, P> Shared<S, P> {
    pub(super) fn new(policy: Policy, replay: P, template: S) -> Self {
        Self {
            policy,
            replay,
            template: Mutex::new(template),
        }
    }

    /// An instance for one retry. It is not ready yet.
    pub(super) fn instance(&self) -> S {
        // A clone that panicked has left the template as it was.
        let template = self.template.lock();
        template.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
