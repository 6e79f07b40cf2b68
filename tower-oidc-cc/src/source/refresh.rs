//! The one task that asks for tokens. It decides nothing: it asks the state what is due.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, Weak},
    task::Poll,
};

use tokio::time::Instant;

use super::{
    shared::{Next, Shared, UnderWay, Waiter},
    sync::{mpsc, timeout, timeout_at},
};
use crate::{
    Credentials, TokenError, error::token::Kind, provider::Provided, request::Issued, store::Leases,
};

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
    /// The number of this task.
    task: u64,
    /// What did not work.
    refused: Refused,
    /// When the provider of refused credentials is asked again.
    reread_at: Option<Instant>,
    /// Whose code is running, in case it panics.
    running: &'static str,
}

/// Credentials that did not work.
enum Refused {
    Nothing,
    /// The provider gave none.
    Missing,
    These(Arc<Credentials>),
}

/// What the task was woken by.
enum Woken {
    Demand(Waiter),
    Timer,
    /// The last handle is gone.
    Closed,
}

// === impl Refresh ===

impl Refresh {
    pub(super) fn new(
        weak: Weak<Shared>,
        shared: &Shared,
        (demands, task): (mpsc::UnboundedReceiver<Waiter>, u64),
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
            task,
            refused: Refused::Nothing,
            reread_at: None,
            running: HTTP_CLIENT,
        }
    }

    pub(super) async fn run(mut self) {
        while let Some(next) = self.shared.upgrade().map(|shared| shared.attend(self.task)) {
            let look = match next {
                // ## Ask => fetch
                Next::Ask(under_way) => {
                    self.answer(under_way).await;
                    continue;
                }
                Next::Sleep(until) => Some(until),
                Next::Idle => None,
                Next::End => return,
            };
            // Nothing is due any more of what was when they came: let them look again.
            for waiter in self.waiting.drain(..) {
                drop(waiter.send(Ok(())));
            }
            let reread = self.reread_at();
            // ## (Sleep | Idle) => (attend | reread | end)
            match self.woken(look.into_iter().chain(reread).min()).await {
                Woken::Demand(waiter) => self.waiting.push(waiter),
                Woken::Closed => return,
                Woken::Timer => {
                    let now = self.shared.upgrade().map(|shared| shared.now().steady);
                    if reread.is_some_and(|at| now.is_some_and(|now| at <= now)) {
                        self.reread().await;
                    }
                }
            }
        }
    }

    async fn woken(&mut self, until: Option<Instant>) -> Woken {
        let demand = match until {
            Some(until) => match timeout_at(until, self.demands.recv()).await {
                Ok(demand) => demand,
                Err(_) => return Woken::Timer,
            },
            None => self.demands.recv().await,
        };
        demand.map_or(Woken::Closed, Woken::Demand)
    }

    /// Fetches a token, and answers everyone who waits for it by the time it is over.
    async fn answer(&mut self, _under_way: UnderWay) {
        let outcome = self.fetch().await;
        let news = outcome.as_ref().ok().filter(|issued| issued.own).cloned();
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let settled = shared.settle(outcome, (&mut self.demands, self.task));
        let Some((answer, waiters)) = settled else {
            return;
        };
        self.waiting.extend(waiters);
        drop(shared);
        // Before they are answered, since a program may end as soon as it has what it came for.
        self.running = STORE;
        let told = self.leases.tell(news.as_ref().filter(|_| answer.is_ok()));
        attending(&self.shared, self.task, told).await;
        for waiter in self.waiting.drain(..) {
            // Who has stopped waiting needs no answer.
            drop(waiter.send(answer.clone()));
        }
    }

    /// Asks with the credentials of the moment, and once more if they are refused and have changed.
    async fn fetch(&mut self) -> Result<Issued, TokenError> {
        self.refused = Refused::Nothing;
        self.reread_at = None;
        let mut rejected: Option<(Arc<Credentials>, TokenError)> = None;
        loop {
            let provided = self.provide().await;
            let credentials = match (provided, &rejected) {
                (Ok(now), Some((then, error))) if now.same_as(then) => return Err(error.clone()),
                (Ok(credentials), _) => credentials,
                (Err(_), Some((_, error))) => return Err(error.clone()),
                (Err(error), None) => {
                    self.refused = Refused::Missing;
                    return Err(TokenError::with_source(Kind::NoCredentials, error));
                }
            };
            self.running = STORE;
            let found = self.leases.ask(&self.shared, &credentials);
            if let Some(issued) = attending(&self.shared, self.task, found).await {
                self.refused = Refused::Nothing;
                return Ok(issued);
            }
            let Some(shared) = self.shared.upgrade() else {
                return Err(TokenError::new(Kind::Vanished));
            };
            if let Err(error) = shared.send() {
                return Err(rejected.map_or(error, |(_, refused)| refused));
            }
            self.running = HTTP_CLIENT;
            let request = shared.grant.fetch(Arc::clone(&credentials));
            drop(shared);
            match attending(&self.shared, self.task, request).await {
                Err(error) if error.is_bad_key() => {
                    // The second round may take as long as the first, or be for another's token.
                    self.leases.release();
                    self.refused = Refused::These(Arc::clone(&credentials));
                    if rejected.is_some() {
                        return Err(error);
                    }
                    rejected = Some((credentials, error));
                }
                outcome => {
                    self.refused = Refused::Nothing;
                    return outcome;
                }
            }
        }
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
        let provided = attending(&self.shared, self.task, timeout(limit, asked)).await;
        provided.unwrap_or_else(|_| {
            let late = || std::io::Error::from(std::io::ErrorKind::TimedOut).into();
            provider.last().ok_or_else(late)
        })
    }

    /// When [`reread`](Self::reread) is worth a call, if ever.
    fn reread_at(&mut self) -> Option<Instant> {
        if matches!(self.refused, Refused::Nothing) {
            return None;
        }
        if self.reread_at.is_none() {
            let shared = self.shared.upgrade()?;
            let every = shared.settings.provider.reread()?;
            self.reread_at = shared.now().steady.checked_add(every);
        }
        self.reread_at
    }

    /// Looks whether the provider has other credentials than those that were refused.
    async fn reread(&mut self) {
        self.reread_at = None;
        let Ok(now) = self.provide().await else {
            return;
        };
        let same = matches!(&self.refused, Refused::These(then) if now.same_as(then));
        if !same && let Some(shared) = self.shared.upgrade() {
            self.refused = Refused::Nothing;
            shared.forgive();
        }
    }
}

/// Runs when the task ends, which is when its runtime is shut down or somebody's code has panicked,
/// too.
impl Drop for Refresh {
    fn drop(&mut self) {
        let shared = self.shared.upgrade();
        // Under the lease of a task that was relieved its successor is at work; one that has just
        // been seen has none before it is abandoned. A panic of the store's must not be the second.
        let of_no_other = |shared: &Arc<Shared>| shared.look(self.task).is_some();
        if shared.as_ref().is_none_or(of_no_other) {
            drop(catch_unwind(AssertUnwindSafe(|| self.leases.release())));
        }
        if let Some(shared) = shared {
            let panicked = std::thread::panicking().then_some(self.running);
            shared.abandon((&mut self.demands, self.task), panicked);
        }
    }
}

/// Waits for `work`, and meanwhile keeps the slot true: the token in it may expire.
async fn attending<F: Future>(shared: &Weak<Shared>, task: u64, work: F) -> F::Output {
    let mut work = pin!(work);
    loop {
        let look = shared.upgrade().and_then(|shared| shared.look(task));
        let Some(look) = look else {
            // Another task sees to it: here it would be looked at for ever.
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
