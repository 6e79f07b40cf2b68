//! The one task that talks to the token endpoint.

use std::sync::{Arc, Weak};

use tokio::{sync::mpsc, time::timeout_at};

use super::{
    grant::{Grant, Issued},
    shared::{Next, Shared, Waiter},
};
use crate::TokenError;

/// Fetches, renews and expires the token, as long as somebody holds a handle.
///
/// There is at most one flight because there is at most one driver and it flies one at a time.
/// It holds the shared state weakly: the demands close with the last handle, which ends it.
pub(super) struct Driver {
    shared: Weak<Shared>,
    grant: Arc<dyn Grant>,
    demands: mpsc::UnboundedReceiver<Waiter>,
}

// === impl Driver ===

impl Driver {
    pub(super) fn new(
        shared: Weak<Shared>,
        grant: Arc<dyn Grant>,
        demands: mpsc::UnboundedReceiver<Waiter>,
    ) -> Self {
        Self {
            shared,
            grant,
            demands,
        }
    }

    pub(super) async fn run(mut self) {
        while let Some(next) = self.shared.upgrade().map(|shared| shared.attend()) {
            let demand = match next {
                // ## Renew => fly
                Next::Renew => None,
                // ## Idle => (fly | end)
                Next::Idle => match self.demands.recv().await {
                    Some(waiter) => Some(waiter),
                    None => return,
                },
                // ## Sleep => (fly | attend | end)
                Next::Sleep(until) => match timeout_at(until, self.demands.recv()).await {
                    Ok(Some(waiter)) => Some(waiter),
                    Ok(None) => return,
                    Err(_) => continue,
                },
            };
            self.fly(demand).await;
        }
    }

    /// Makes one token request, and answers everyone who waits for it by the time it is over.
    async fn fly(&mut self, demand: Option<Waiter>) {
        let leave = self.shared.upgrade().map(|shared| shared.depart());
        let outcome = match leave {
            Some(Ok(())) => self.fetch().await,
            Some(Err(error)) => {
                // Whoever enters from here on finds the refusal.
                demand
                    .into_iter()
                    .for_each(|waiter| drop(waiter.send(Err(error.clone()))));
                return;
            }
            None => return,
        };
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let (answer, waiters) = shared.settle(outcome, &mut self.demands);
        for waiter in demand.into_iter().chain(waiters) {
            // Who has stopped waiting needs no answer.
            drop(waiter.send(answer.clone()));
        }
    }

    /// Waits for one request to end, and meanwhile keeps the slot true.
    async fn fetch(&self) -> Result<Issued, TokenError> {
        let mut flight = self.grant.fetch();
        loop {
            let look = self.shared.upgrade().and_then(|shared| shared.look_at());
            let Some(look) = look else {
                return flight.await;
            };
            // The token in use may expire while its successor is on the way.
            match timeout_at(look, flight.as_mut()).await {
                Ok(outcome) => return outcome,
                Err(_) => drop(self.shared.upgrade().map(|shared| shared.attend())),
            }
        }
    }
}

/// Runs when the task ends, which is when its runtime is shut down or the client has panicked, too.
impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.abandon(&mut self.demands, std::thread::panicking());
        }
    }
}
