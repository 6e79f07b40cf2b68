//! One call's turn to send: after any pause of its credential, with a permit whose lease is not over.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    LimitError,
    account::Account,
    credential::{Credential, Pause, Probe},
    queue::{Limit, Readiness, Waiter},
    request::RequestPermit,
};

/// Waited for in `poll_ready`, taken in `call`; and waited for again, in the response future, by one
/// that was taken too late.
#[derive(Debug)]
pub(super) struct Turn {
    credential: Arc<Credential>,
    readiness: Readiness<Account>,
    /// There while it waits for the end of a pause.
    pause: Option<Waiter<Pause>>,
    /// There if the next request tries whether a pause is over.
    probe: Option<Probe>,
}

// === impl Turn ===

impl Turn {
    pub(super) fn new(credential: &Arc<Credential>, longest: Option<Duration>) -> Self {
        let queue = &credential.account;
        Self::of(credential, Readiness::new(queue, credential.line, longest))
    }

    fn of(credential: &Arc<Credential>, readiness: Readiness<Account>) -> Self {
        Self {
            credential: Arc::clone(credential),
            readiness,
            pause: None,
            probe: None,
        }
    }

    /// The turn of a call whose own has passed, before all who have had none. It has waited `since` its call.
    #[cold]
    pub(super) fn late(&mut self, since: Instant) -> Self {
        let mut late = Self::of(&self.credential, self.readiness.late(since));
        late.probe = self.probe.take();
        late
    }

    /// Waits for the inner service, and then for a permit, outside of any pause.
    ///
    /// # Errors
    /// Only the inner service's own.
    #[inline]
    pub(super) fn poll_ready<E>(
        &mut self,
        cx: &mut Context<'_>,
        inner: impl FnOnce(&mut Context<'_>) -> Poll<Result<(), E>>,
    ) -> Poll<Result<(), E>> {
        if self.readiness.is_decided() {
            return Poll::Ready(Ok(()));
        }
        // First: others would wait for a try that waits for it.
        ready!(self.readiness.poll_inner(cx, inner))?;
        // A permit is only granted while it is polled for, so that nobody who waited in the queue
        // while a pause began is sent into it.
        if !ready!(self.poll_pause_over(cx)) {
            return Poll::Ready(Ok(()));
        }
        ready!(self.readiness.poll_permit(cx));
        if !self.readiness.is_granted() {
            // Without a permit there is no try, and another may.
            self.probe = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Takes what `poll_ready` came to: a permit of a request that is sent now, or nothing if it is
    /// too late for that.
    ///
    /// # Errors
    /// The wait was too long.
    #[inline]
    pub(super) fn take(&mut self) -> Result<Option<RequestPermit>, LimitError> {
        let grant = self.readiness.take()?;
        let queue = &self.credential.account;
        if self.must_pause() {
            queue.update(|account| account.withdraw(grant));
            return Ok(None);
        }
        if !queue.update(|account| account.send(grant)) {
            return Ok(None);
        }
        let probe = self.probe.take();
        Ok(Some(RequestPermit::sent(&self.credential, grant, probe)))
    }

    /// Waits for a permit, and takes it, where the inner service is ready.
    ///
    /// # Errors
    /// The wait was too long.
    pub(super) fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        since: Instant,
    ) -> Poll<Result<RequestPermit, LimitError>> {
        loop {
            let inner = |_: &mut Context<'_>| Poll::Ready(Ok::<_, Infallible>(()));
            let Ok(()) = ready!(self.poll_ready(cx, inner));
            if let Some(permit) = self.take().transpose() {
                return Poll::Ready(permit);
            }
            // Something has come between, and it is late again.
            *self = self.late(since);
        }
    }

    #[inline]
    fn must_pause(&self) -> bool {
        self.credential.must_pause(self.probe.as_ref())
    }

    /// Waits for the end of a pause, if there is one. Says whether the request may go on; if not,
    /// its error is decided.
    #[inline]
    fn poll_pause_over(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // Whoever waits leaves in the order of coming, and not when the flag is seen to be clear.
        if !self.must_pause() && self.pause.is_none() {
            return Poll::Ready(true);
        }
        self.poll_pause(cx)
    }

    #[cold]
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // A place in the queue kept through a pause would keep others waiting.
        self.readiness.step_back();
        let credential = &self.credential;
        let waiter = self
            .pause
            .get_or_insert_with(|| credential.wait_for_pause());
        let passed = ready!(waiter.poll_pass(self.readiness.bound(), cx));
        self.pause = None;
        Poll::Ready(match self.credential.probe(passed) {
            Ok(probe) => {
                self.probe = probe;
                true
            }
            Err(error) => {
                self.readiness.refuse(error);
                false
            }
        })
    }
}

/// Another caller's, which has nothing yet.
impl Clone for Turn {
    fn clone(&self) -> Self {
        Self::of(&self.credential, self.readiness.clone())
    }
}
