//! The one task that talks to the token endpoint.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Weak},
};

use tokio::time::Instant;

use super::{
    duty::Next,
    entry::Waiter,
    fleet::Fleet,
    grant::{Grant, Issued, Means},
    keyring::Keyring,
    shared::Shared,
    sync::{mpsc, timeout_at},
};
use crate::{TokenError, clock::Clock, error::token::Kind};

/// Fetches, renews and expires the token, as long as somebody holds a handle.
///
/// There is at most one flight because there is at most one driver and it flies one at a time.
/// It holds the shared state weakly: the demands close with the last handle, which ends it.
pub(super) struct Driver {
    shared: Weak<Shared>,
    grant: Arc<dyn Grant>,
    keyring: Keyring,
    fleet: Fleet,
    clock: Clock,
    demands: mpsc::UnboundedReceiver<Waiter>,
    /// Whose demand led to the flight. It is kept here for the end of the driver: who waits must
    /// not hear of that before the shared state does, and ask the same driver again.
    waiting: Option<Waiter>,
    /// The number of this driver.
    shift: u64,
}

/// What the driver was woken by.
enum Event {
    Demand(Waiter),
    Timer,
    /// The last handle is gone.
    Closed,
}

// === impl Driver ===

impl Driver {
    pub(super) fn new(
        shared: Weak<Shared>,
        grant: Arc<dyn Grant>,
        keyring: Keyring,
        fleet: Fleet,
        clock: Clock,
        (demands, shift): (mpsc::UnboundedReceiver<Waiter>, u64),
    ) -> Self {
        Self {
            shared,
            grant,
            keyring,
            fleet,
            clock,
            demands,
            waiting: None,
            shift,
        }
    }

    pub(super) async fn run(mut self) {
        while let Some(next) = self
            .shared
            .upgrade()
            .map(|shared| shared.attend(self.shift))
        {
            let look = match next {
                // ## Renew => fly
                Next::Renew => {
                    self.fly().await;
                    continue;
                }
                Next::Sleep(until) => Some(until),
                Next::Idle => None,
                Next::End => return,
            };
            let watch = self.keyring.watch_at(self.clock.now().steady);
            // ## (Sleep | Idle) => (fly | attend | ask for other credentials | end)
            match self.event(look.into_iter().chain(watch).min()).await {
                Event::Demand(waiter) => {
                    self.waiting = Some(waiter);
                    self.fly().await;
                }
                Event::Closed => return,
                Event::Timer => {
                    let due = watch.is_some_and(|at| at <= self.clock.now().steady);
                    if due
                        && attending(&self.shared, self.shift, self.keyring.changed()).await
                        && let Some(shared) = self.shared.upgrade()
                    {
                        shared.forgive();
                    }
                }
            }
        }
    }

    async fn event(&mut self, until: Option<Instant>) -> Event {
        let demand = match until {
            Some(until) => match timeout_at(until, self.demands.recv()).await {
                Ok(demand) => demand,
                Err(_) => return Event::Timer,
            },
            None => self.demands.recv().await,
        };
        demand.map_or(Event::Closed, Event::Demand)
    }

    /// Makes one token request, and answers everyone who waits for it by the time it is over.
    async fn fly(&mut self) {
        let Some((why, _flying)) = self
            .shared
            .upgrade()
            .and_then(|shared| shared.take_off(self.shift))
        else {
            return;
        };
        let outcome = self.fetch().await;
        let news = outcome.as_ref().ok().filter(|i| i.means == Means::Request);
        let news = news.cloned();
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let settled = shared.settle(outcome, why, (&mut self.demands, self.shift));
        let Some((answer, waiters)) = settled else {
            return;
        };
        for waiter in self.waiting.take().into_iter().chain(waiters) {
            // Who has stopped waiting needs no answer.
            drop(waiter.send(answer.clone()));
        }
        // Last, since nobody here waits for it.
        if let Some(issued) = news.filter(|_| answer.is_ok()) {
            attending(&self.shared, self.shift, self.fleet.tell(&issued)).await;
        }
    }

    /// Asks with one key after the other, while the server refuses them as what they are.
    async fn fetch(&mut self) -> Result<Issued, TokenError> {
        let mut failure = None;
        for turn in self.keyring.turns() {
            let provided = attending(&self.shared, self.shift, self.keyring.provide(turn)).await;
            let credentials = match provided {
                Ok(credentials) => credentials,
                Err(error) => {
                    failure = Some(error);
                    continue;
                }
            };
            let shared = &self.shared;
            let found = self.fleet.ask(shared, &credentials);
            if let Some(issued) = attending(shared, self.shift, found).await {
                // The server accepted these of another process.
                self.keyring.accept(turn);
                return Ok(issued);
            }
            let Some(leave) = self.shared.upgrade().map(|shared| shared.depart()) else {
                break;
            };
            if let Err(error) = leave {
                failure.get_or_insert(error);
                break;
            }
            let flight = self.grant.fetch(Arc::clone(&credentials));
            match attending(&self.shared, self.shift, flight).await {
                Ok(issued) => {
                    self.keyring.accept(turn);
                    return Ok(issued);
                }
                Err(error) => {
                    let next = error.is_bad_key();
                    failure = Some(error);
                    if !next {
                        break;
                    }
                    self.keyring.refuse(turn, credentials);
                }
            }
        }
        Err(failure.unwrap_or_else(|| TokenError::new(Kind::Vanished)))
    }
}

/// Waits for `work`, and meanwhile keeps the slot true: the token in it may expire.
async fn attending<F: Future>(shared: &Weak<Shared>, shift: u64, work: F) -> F::Output {
    let mut work = pin!(work);
    loop {
        let look = shared.upgrade().and_then(|shared| shared.look_at());
        let Some(look) = look else {
            return work.await;
        };
        match timeout_at(look, work.as_mut()).await {
            Ok(output) => return output,
            Err(_) => {
                let next = shared.upgrade().map(|shared| shared.attend(shift));
                if let None | Some(Next::End) = next {
                    // Another driver sees to the slot; here it would be looked at for ever.
                    return work.await;
                }
            }
        }
    }
}

/// Runs when the task ends, which is when its runtime is shut down or the client has panicked, too.
impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.abandon((&mut self.demands, self.shift), std::thread::panicking());
        }
    }
}
