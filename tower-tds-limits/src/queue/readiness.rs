//! A `Service`'s readiness behind a queue: the inner service first, then a permit.

use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;

use super::{Limit, Line, Queue, Waiter};
use crate::LimitError;

/// What a queue's grant turns into. Dropping it gives the grant back.
pub(crate) trait Permit {
    type Limit: Limit + Send + 'static;

    /// What a permit has to know besides its grant; it leads to the queue.
    type Source: Clone;

    fn queue(source: &Self::Source) -> &Arc<Queue<Self::Limit>>;

    /// Where in the queue those with this source stand.
    fn line(_source: &Self::Source) -> Line {
        Line::Back
    }

    /// Stands for the one that the limit has just counted.
    fn granted(source: &Self::Source, grant: <Self::Limit as Limit>::Grant) -> Self;
}

/// One caller's turn: waited for in `poll_ready`, taken in `call`.
pub(crate) struct Readiness<P: Permit> {
    source: P::Source,
    waiter: Waiter<P::Limit>,
    stage: Stage<<P::Limit as Limit>::Grant>,
}

#[derive(Debug)]
enum Stage<G> {
    // ## Unready => InnerReady
    Unready,
    /// Remembered, because an inner service need not say it twice.
    // ## InnerReady => (Granted | Refused)
    InnerReady,
    // ## Granted => Unready, by `take`
    Granted(G),
    /// Told by the response future: a `poll_ready` error would be final.
    // ## Refused => Unready, by `take`
    Refused(LimitError),
}

// === impl Readiness ===

impl<P: Permit> Readiness<P> {
    pub(crate) fn new(source: P::Source, max_wait: Option<Duration>) -> Self {
        Self {
            waiter: Waiter::new(Arc::clone(P::queue(&source)), P::line(&source), max_wait),
            source,
            stage: Stage::Unready,
        }
    }

    pub(crate) fn source(&self) -> &P::Source {
        &self.source
    }

    pub(crate) fn max_wait(&self) -> Option<Duration> {
        self.waiter.max_wait()
    }

    /// Another caller's in the same queue: no permit, no place in the queue.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.source.clone(), self.waiter.max_wait())
    }

    /// That of a call whose permit is over: its inner service is ready.
    pub(crate) fn late(&self) -> Self {
        let line = P::line(&self.source).late();
        let queue = Arc::clone(P::queue(&self.source));
        Self {
            source: self.source.clone(),
            waiter: Waiter::new(queue, line, self.max_wait()),
            stage: Stage::InnerReady,
        }
    }

    /// Waits for the inner service and then for a permit.
    ///
    /// The permit comes last because it is counted from its grant, and whatever the inner
    /// service waits for would be counted with it.
    ///
    /// # Errors
    /// Only the inner service's own.
    #[inline]
    pub(crate) fn poll_ready<E>(
        &mut self,
        cx: &mut Context<'_>,
        inner: impl FnOnce(&mut Context<'_>) -> Poll<Result<(), E>>,
    ) -> Poll<Result<(), E>> {
        if let Stage::Unready = self.stage {
            ready!(inner(cx))?;
            self.stage = Stage::InnerReady;
        }
        if let Stage::InnerReady = self.stage {
            self.stage = match ready!(self.waiter.poll_pass(cx)) {
                Ok(grant) => Stage::Granted(grant),
                Err(refused) => Stage::Refused(refused),
            };
        }
        Poll::Ready(Ok(()))
    }

    /// Whether `call` may come.
    #[inline]
    pub(crate) fn is_decided(&self) -> bool {
        matches!(self.stage, Stage::Granted(_) | Stage::Refused(_))
    }

    /// Whether `call` will take a permit.
    #[inline]
    pub(crate) fn is_granted(&self) -> bool {
        matches!(self.stage, Stage::Granted(_))
    }

    /// Gives back a permit, or a place in the queue, and waits anew at the next poll. Gives since
    /// when it has waited, if it has.
    pub(crate) fn step_back(&mut self) -> Option<Instant> {
        let since = self.waiter.give_up();
        if let Stage::Granted(grant) = self.stage {
            self.stage = Stage::InnerReady;
            drop(P::granted(&self.source, grant));
        }
        since
    }

    /// The wait for a permit counts from `since`.
    pub(crate) fn waiting_since(&mut self, since: Instant) {
        self.waiter.waiting_since(since);
    }

    /// Has the response future tell `error`.
    pub(crate) fn reject(&mut self, error: LimitError) {
        self.waiter.give_up();
        self.stage = Stage::Refused(error);
    }

    /// Ends the wait for a permit with `error` for the response future. Says whether there was
    /// such a wait.
    pub(crate) fn refuse(&mut self, error: LimitError) -> bool {
        let waiting = matches!(self.stage, Stage::InnerReady);
        if waiting {
            self.reject(error);
        }
        waiting
    }

    /// Takes what `poll_ready` came to.
    ///
    /// # Errors
    /// The wait was too long.
    ///
    /// # Panics
    /// If `poll_ready` did not give Ready before.
    #[expect(
        clippy::panic,
        reason = "calling an unready service is a programmer's error, and panicking the contract's answer"
    )]
    #[inline]
    pub(crate) fn take(&mut self) -> Result<P, LimitError> {
        if let Stage::Granted(grant) = self.stage {
            self.stage = Stage::Unready;
            return Ok(P::granted(&self.source, grant));
        }
        match mem::replace(&mut self.stage, Stage::Unready) {
            Stage::Refused(error) => Err(error),
            Stage::Granted(_) | Stage::Unready | Stage::InnerReady => {
                panic!("`poll_ready` must give Ready before `call`")
            }
        }
    }
}

impl<P: Permit> Drop for Readiness<P> {
    fn drop(&mut self) {
        self.step_back();
    }
}

impl<P: Permit> fmt::Debug for Readiness<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.stage {
            Stage::Unready => "Unready",
            Stage::InnerReady => "InnerReady",
            Stage::Granted(_) => "Granted",
            Stage::Refused(_) => "Refused",
        })
    }
}
