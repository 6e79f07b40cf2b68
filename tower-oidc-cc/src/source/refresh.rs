//! The one task that asks for tokens. It decides nothing: it asks the state what is due.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Weak,
    task::Poll,
};

use super::{
    shared::{Next, Shared, UnderWay, Waiter},
    sync::{mpsc, timeout, timeout_at},
};
use crate::{TokenError, error::token::Kind, provider::Provided, request::Issued, store::Leases};

/// Fetches, renews and expires the token, as long as somebody holds a handle.
///
/// There is at most one request under way because there is at most one task and it makes one at a
/// time. It holds the shared state weakly: the demands close with the last handle, which ends it.
pub(super) struct Refresh {
    shared: Weak<Shared>,
    leases: Leases,
    demands: mpsc::UnboundedReceiver<Waiter>,
    /// Who waits for the request that is due or under way. They are kept here for the end of the
    /// task: who waits must not hear of that before the shared state does, and ask the same task
    /// again.
    waiting: Vec<Waiter>,
    /// Whose code is running, in case it panics.
    running: &'static str,
}

// === impl Refresh ===

impl Refresh {
    pub(super) fn new(
        weak: Weak<Shared>,
        shared: &Shared,
        demands: mpsc::UnboundedReceiver<Waiter>,
    ) -> Self {
        let settings = &shared.settings;
        Self {
            shared: weak,
            leases: Leases::new(
                settings.store.clone(),
                settings.clock.clone(),
                settings.term,
            ),
            demands,
            waiting: Vec::new(),
            running: HTTP_CLIENT,
        }
    }

    pub(super) async fn run(mut self) {
        while let Some(next) = self.shared.upgrade().map(|shared| shared.attend()) {
            let look = match next {
                // ## Ask => fetch
                Next::Ask(under_way) => {
                    self.answer(under_way).await;
                    continue;
                }
                Next::Sleep(until) => Some(until),
                Next::Idle => None,
            };
            // Nothing is due any more of what was when they came: let them look again.
            for waiter in self.waiting.drain(..) {
                drop(waiter.send(Ok(())));
            }
            // ## (Sleep | Idle) => (attend | end)
            let demand = match look {
                Some(until) => match timeout_at(until, self.demands.recv()).await {
                    Ok(demand) => demand,
                    Err(_) => continue,
                },
                None => self.demands.recv().await,
            };
            match demand {
                Some(waiter) => self.waiting.push(waiter),
                // The last handle is gone.
                None => return,
            }
        }
    }

    /// Fetches a token, and answers everyone who waits for it by the time it is over.
    async fn answer(&mut self, _under_way: UnderWay) {
        let outcome = self.fetch().await;
        let news = outcome.as_ref().ok().filter(|issued| issued.own).cloned();
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let (answer, waiters) = shared.settle(outcome, &mut self.demands);
        self.waiting.extend(waiters);
        drop(shared);
        // Before they are answered, since a program may end as soon as it has what it came for.
        self.running = STORE;
        let told = self.leases.tell(news.as_ref().filter(|_| answer.is_ok()));
        attending(&self.shared, told).await;
        for waiter in self.waiting.drain(..) {
            // Who has stopped waiting needs no answer.
            drop(waiter.send(answer.clone()));
        }
    }

    /// Asks with the credentials of the moment.
    async fn fetch(&mut self) -> Result<Issued, TokenError> {
        let provided = self.provide().await;
        let credentials =
            provided.map_err(|error| TokenError::with_source(Kind::NoCredentials, error))?;
        self.running = STORE;
        let found = self.leases.ask(&self.shared, &credentials);
        if let Some(issued) = attending(&self.shared, found).await {
            return Ok(issued);
        }
        let Some(shared) = self.shared.upgrade() else {
            return Err(TokenError::new(Kind::Vanished));
        };
        shared.send()?;
        self.running = HTTP_CLIENT;
        let request = shared.grant.fetch(credentials);
        drop(shared);
        attending(&self.shared, request).await
    }

    /// The credentials of this moment.
    async fn provide(&mut self) -> Provided {
        let Some(shared) = self.shared.upgrade() else {
            return Err("the handle is gone".into());
        };
        let (provider, limit) = (shared.settings.provider.clone(), shared.settings.timeout);
        drop(shared);
        self.running = PROVIDER;
        let mut asked = pin!(provider.provide());
        // The task would end by a panic of somebody else's code, and so would all that wait.
        let asked = std::future::poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| asked.as_mut().poll(cx)));
            polled.unwrap_or_else(|_| Poll::Ready(Err("the provider panicked".into())))
        });
        let provided = attending(&self.shared, timeout(limit, asked)).await;
        provided.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
    }
}

/// Runs when the task ends, which is when its runtime is shut down or somebody's code has panicked,
/// too.
impl Drop for Refresh {
    fn drop(&mut self) {
        // A panic of the store's must not be the second.
        drop(catch_unwind(AssertUnwindSafe(|| self.leases.release())));
        if let Some(shared) = self.shared.upgrade() {
            let panicked = std::thread::panicking().then_some(self.running);
            shared.abandon(&mut self.demands, panicked);
        }
    }
}

/// Waits for `work`, and meanwhile keeps the slot true: the token in it may expire.
async fn attending<F: Future>(shared: &Weak<Shared>, work: F) -> F::Output {
    let mut work = pin!(work);
    loop {
        let look = shared.upgrade().and_then(|shared| shared.look());
        let Some(look) = look else {
            // There is no handle, and so no token to keep true.
            return work.await;
        };
        if let Ok(output) = timeout_at(look, work.as_mut()).await {
            return output;
        }
    }
}

const HTTP_CLIENT: &str = "the HTTP client";
const PROVIDER: &str = "the provider of credentials";
const STORE: &str = "the token store";
