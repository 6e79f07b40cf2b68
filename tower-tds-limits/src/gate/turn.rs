//! A `Service`'s readiness behind a gate: the inner service first, then a permit.

use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;

use super::{Admit, Gate, Line, Waiter};
use crate::LimitError;

/// What a gate's grant turns into. Dropping it gives the grant back.
pub(crate) trait Permit {
    type Rule: Admit;

    /// What a permit has to know besides its grant; it leads to the gate.
    type Source: Clone;

    fn gate(source: &Self::Source) -> &Arc<Gate<Self::Rule>>;

    /// Where in the queue those with this source stand.
    fn line(_source: &Self::Source) -> Line {
        Line::Back
    }

    /// Stands for the one that the gate has just counted.
    fn granted(source: &Self::Source, grant: <Self::Rule as Admit>::Grant) -> Self;
}

/// One caller's turn: waited for in `poll_ready`, taken in `call`.
pub(crate) struct Turn<P: Permit> {
    source: P::Source,
    waiter: Waiter<P::Rule>,
    readiness: Readiness<<P::Rule as Admit>::Grant>,
}

#[derive(Debug)]
enum Readiness<G> {
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

// === impl Turn ===

impl<P: Permit> Turn<P> {
    pub(crate) fn new(source: P::Source, max_wait: Option<Duration>) -> Self {
        Self {
            waiter: Waiter::new(Arc::clone(P::gate(&source)), P::line(&source), max_wait),
            source,
            readiness: Readiness::Unready,
        }
    }

    pub(crate) fn source(&self) -> &P::Source {
        &self.source
    }

    /// Another caller's at the same gate: no permit, no place in the queue.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.source.clone(), self.waiter.max_wait())
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
        if let Readiness::Unready = self.readiness {
            ready!(inner(cx))?;
            self.readiness = Readiness::InnerReady;
        }
        if let Readiness::InnerReady = self.readiness {
            self.readiness = match ready!(self.waiter.poll_pass(cx)) {
                Ok(grant) => Readiness::Granted(grant),
                Err(refused) => Readiness::Refused(refused),
            };
        }
        Poll::Ready(Ok(()))
    }

    /// Takes a permit, or has the response future tell that there is none. The inner service is
    /// ready.
    pub(crate) fn pass_or_reject(&mut self) {
        self.readiness = match P::gate(&self.source).try_pass(P::line(&self.source)) {
            Ok(grant) => Readiness::Granted(grant),
            Err(wait) => Readiness::Refused(LimitError::rejected(wait)),
        };
    }

    /// Whether `call` may come.
    #[inline]
    pub(crate) fn is_decided(&self) -> bool {
        matches!(
            self.readiness,
            Readiness::Granted(_) | Readiness::Refused(_)
        )
    }

    /// Whether `call` will take a permit.
    #[inline]
    pub(crate) fn is_granted(&self) -> bool {
        matches!(self.readiness, Readiness::Granted(_))
    }

    /// Gives back a permit, or a place in the queue, and waits anew at the next poll. Gives since
    /// when it has waited, if it has.
    pub(crate) fn step_back(&mut self) -> Option<Instant> {
        let since = self.waiter.give_up();
        if let Readiness::Granted(grant) = self.readiness {
            self.readiness = Readiness::InnerReady;
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
        self.readiness = Readiness::Refused(error);
    }

    /// Ends the wait for a permit with `error` for the response future. Says whether there was
    /// such a wait.
    pub(crate) fn refuse(&mut self, error: LimitError) -> bool {
        let waiting = matches!(self.readiness, Readiness::InnerReady);
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
        if let Readiness::Granted(grant) = self.readiness {
            self.readiness = Readiness::Unready;
            return Ok(P::granted(&self.source, grant));
        }
        match mem::replace(&mut self.readiness, Readiness::Unready) {
            Readiness::Refused(error) => Err(error),
            Readiness::Granted(_) | Readiness::Unready | Readiness::InnerReady => {
                panic!("`poll_ready` must give Ready before `call`")
            }
        }
    }
}

impl<P: Permit> Drop for Turn<P> {
    fn drop(&mut self) {
        self.step_back();
    }
}

impl<P: Permit> fmt::Debug for Turn<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.readiness {
            Readiness::Unready => "Unready",
            Readiness::InnerReady => "InnerReady",
            Readiness::Granted(_) => "Granted",
            Readiness::Refused(_) => "Refused",
        })
    }
}
