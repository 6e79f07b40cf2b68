//! How a caller comes by a token that is not in the slot.

use std::sync::Arc;

use super::{
    driver::Driver,
    fleet::Fleet,
    keyring::Keyring,
    shared::Shared,
    sync::{Handle, oneshot},
};
use crate::{TokenError, error::token::Kind};

/// The outcome of a flight, as each waiter gets it.
pub(super) type Answer = Result<(), TokenError>;
/// The way to one waiter.
pub(super) type Waiter = oneshot::Sender<Answer>;

/// What a caller finds who looks for a token.
pub(super) enum Entry {
    /// There is one.
    Fresh,
    /// There is none, and this is why nobody asks for one now.
    Refused(TokenError),
    /// It has been asked for, of the driver of this number.
    Waiting(oneshot::Receiver<Answer>, u64),
}

// === impl Shared ===

impl Shared {
    /// Looks for a token, and joins or starts the flight that brings one.
    pub(super) fn enter(self: &Arc<Self>) -> Entry {
        let now = self.now();
        let mut cold = self.lock();
        let fresh = cold.fresh_at(now).is_some();
        if !fresh && let Some(error) = cold.refused_at(now.steady) {
            return Entry::Refused(error);
        }
        let hired = match (cold.attended(), Handle::try_current()) {
            (true, _) => None,
            (false, Ok(runtime)) => Some((runtime, cold.hire())),
            (false, Err(_)) if fresh => None,
            (false, Err(_)) => return Entry::Refused(TokenError::new(Kind::NoRuntime)),
        };
        let entry = if fresh {
            Entry::Fresh
        } else {
            Entry::Waiting(cold.demand(), cold.shift)
        };
        let shift = cold.shift;
        // A runtime that is shutting down drops the task at once, and the driver's drop locks.
        drop(cold);
        if let Some((runtime, demands)) = hired {
            let settings = &self.settings;
            let driver = Driver::new(
                Arc::downgrade(self),
                Arc::clone(&self.grant),
                Keyring::new(settings.provider.clone(), settings.timeout),
                Fleet::new(
                    settings.store.clone(),
                    settings.clock.clone(),
                    settings.term(),
                ),
                settings.clock.clone(),
                (demands, shift),
            );
            drop(runtime.spawn(driver.run()));
        }
        entry
    }

    /// Gives up the driver of this number, which has not answered for longer than any flight
    /// takes: its runtime is kept, and nobody drives it.
    pub(super) fn relieve(&self, shift: u64) {
        let mut cold = self.lock();
        if cold.shift == shift {
            cold.dismiss();
            self.slot.empty();
            drop(cold);
            tracing::warn!("the runtime that asks for tokens stands still: another takes over");
        }
    }
}
