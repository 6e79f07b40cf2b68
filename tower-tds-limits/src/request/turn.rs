use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::time::Instant;

use super::RequestPermit;
use crate::{
    LimitError, WaitCause,
    account::Account,
    credential::{Credential, Pause, Probe},
    wait::{Refusal, Waiter},
};

/// One call's wait for its permit: after any pause of its credential, in the order of the queue.
#[derive(Debug)]
pub(super) struct Turn {
    account: Waiter<Account>,
    /// Set while the call waits for the end of a pause.
    pause: Option<Box<Waiter<Pause>>>,
    /// Set if the request tests whether a pause is over.
    probe: Option<Probe>,
}

// === impl Turn ===

impl Turn {
    #[inline]
    pub(super) fn new(credential: &Arc<Credential>) -> Self {
        Self {
            account: Waiter::new(&credential.account, credential.line),
            pause: None,
            probe: None,
        }
    }

    /// Keeps the place in the queue, and lets later calls pass.
    ///
    /// # Errors
    /// If too many calls wait.
    pub(super) fn skip(&mut self, most_waiting: usize) -> Result<(), LimitError> {
        // Another call may probe.
        self.probe = None;
        let skipped = self.account.skip(most_waiting);
        skipped.map_err(|_full| LimitError::rejected(WaitCause::Readiness, None))
    }

    /// Waits until the request of `credential` may be sent.
    ///
    /// # Errors
    /// If too many calls wait, or if the pause is too long to wait for.
    #[inline]
    pub(super) fn poll_permit(
        &mut self,
        credential: &Arc<Credential>,
        cx: &mut Context<'_>,
        now: Instant,
        most_waiting: usize,
    ) -> Poll<Result<RequestPermit, LimitError>> {
        if self.pause.is_some() || credential.must_pause(self.probe.as_ref()) {
            ready!(self.poll_pause(credential, cx, now, most_waiting))?;
        }
        let passed = ready!(self.account.poll_pass(cx, now, most_waiting));
        Poll::Ready(match passed {
            Ok(grant) => {
                let probe = self.probe.take();
                Ok(RequestPermit::new(credential, grant, probe))
            }
            Err(_full) => {
                let Refusal { cause, wait } = self.account.wait(now);
                Err(LimitError::rejected(cause, wait))
            }
        })
    }

    #[cold]
    fn poll_pause(
        &mut self,
        credential: &Arc<Credential>,
        cx: &mut Context<'_>,
        now: Instant,
        most_waiting: usize,
    ) -> Poll<Result<(), LimitError>> {
        if self.account.skip(most_waiting).is_err() {
            return Poll::Ready(Err(credential.rejection(now)));
        }
        let pause = self
            .pause
            .get_or_insert_with(|| Box::new(Waiter::new(&credential.pause, credential.line)));
        let passed = ready!(pause.poll_pass(cx, now, usize::MAX));
        self.pause = None;
        Poll::Ready(match passed {
            Ok(passage) => credential.probe(passage, now).map(|probe| {
                self.probe = probe;
            }),
            Err(_full) => Err(credential.rejection(now)),
        })
    }

    /// The cause of the wait while the inner service is ready, and the time until it ends.
    pub(super) fn wait(&self, credential: &Credential, now: Instant) -> Refusal {
        if self.pause.is_some() {
            credential.wait(now)
        } else {
            self.account.wait(now)
        }
    }
}
