//! Permit of one sent request, and the response body that holds it.

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_tds_outcome::Outcome;

use crate::{
    account::{Account, Granted, reactions::is_within},
    clock::{self, nanos},
    limiter::Stack,
    limits::Proof,
};

/// Permit of one sent request. Its methods and its drop record each stage in the account once.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    pub(super) stack: Arc<Stack>,
    pub(super) grant: Granted,
    stage: Stage,
    /// Time that the service took so far, in nanoseconds: until the head, and while the body was
    /// pending. How long a reader takes is not the service's.
    took: u64,
    pending_since: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// From the grant on, the service can count the request at any time.
    // ## Sent => (Proven | Over)
    Sent,
    /// The service has counted the request, and the body is still coming.
    // ## Proven => Over
    Proven,
    Over,
}

pin_project! {
    /// Response body that holds the slot of its request among those in flight.
    ///
    /// The slot returns at the end of the body, at an error, or when you drop the body. A body
    /// that has already ended when the head arrives holds none, and neither does the default.
    ///
    /// # Cancel safety
    /// Dropping it returns the slot at once. The permits of the quotas are held for as
    /// long as [`Proof`](crate::Proof) demands.
    ///
    /// # Errors
    /// Those of the inner body.
    #[derive(Debug, Default)]
    pub struct PermitBody<B> {
        #[pin]
        inner: B,
        // Also kept for its drop, which frees the slot.
        permit: Option<RequestPermit>,
    }
}

// === impl RequestPermit ===

impl RequestPermit {
    #[inline]
    pub(super) fn new(stack: Arc<Stack>, grant: Granted, now: Instant) -> Self {
        Self {
            stack,
            grant,
            stage: Stage::Sent,
            took: 0,
            pending_since: Some(now),
        }
    }

    /// Records an outcome. `is_whole` is set for an error, and for a response whose body has ended.
    /// Returns whether the body has to hold the permit; if not, the permit is to be dropped.
    #[inline]
    pub(super) fn record(&mut self, outcome: Outcome, is_whole: bool) -> bool {
        match outcome {
            Outcome::Unsent => self.withdraw(),
            // Neither the head nor the end of the body is a proof: behind a gateway that timed out,
            // the service may still begin the request.
            Outcome::Lost | Outcome::GatewayTimedOut => self.lose(self.stack.limits.lost_after),
            outcome => self.prove_by_head(outcome, is_whole),
        }
        self.stage != Stage::Over
    }

    /// Records whether the service is being waited for, if the call's deadline ends with its body.
    #[inline]
    fn time(&mut self, is_pending: bool, now: impl FnOnce() -> Instant) {
        if !self.grant.has_body || is_pending == self.pending_since.is_some() {
            return;
        }
        let now = now();
        match self.pending_since.take() {
            Some(since) => self.took += nanos(now.saturating_duration_since(since)),
            None => self.pending_since = Some(now),
        }
    }

    /// Records the end of the call after its head, and with its `whole` body, which proves an unproven
    /// request.
    fn finish(&mut self, whole: bool) {
        let (grant, stage) = (self.grant, mem::replace(&mut self.stage, Stage::Over));
        let is_timed = grant.has_body && (whole || self.took > 0);
        match stage {
            Stage::Over => return,
            // This needs no clock.
            Stage::Proven if !is_timed => return self.stack.account.update(Account::end),
            Stage::Sent | Stage::Proven => {}
        }
        let now = clock::now();
        self.time(false, || now);
        let (took, after) = (self.took, self.stack.limits.lost_after);
        self.stack.account.update(|account| {
            if is_timed {
                account.learn(now, grant, took, whole);
            }
            match stage {
                Stage::Sent if whole => account.prove_by_end(now, grant),
                Stage::Sent => account.lose(now, grant, after),
                Stage::Proven | Stage::Over => account.end(),
            }
        });
    }

    /// Records the end of the call without a response. The request may still be counted for this long.
    #[cold]
    pub(super) fn lose(&mut self, after: Duration) {
        let (now, grant) = (clock::now(), self.grant);
        let account = &self.stack.account;
        account.update(|account| {
            account.learn(now, grant, u64::MAX, false);
            account.lose(now, grant, after);
        });
        self.stage = Stage::Over;
    }

    /// Takes back the grant of a request that was never sent.
    pub(super) fn withdraw(&mut self) {
        let grant = self.grant;
        self.stack.account.update(|account| account.withdraw(grant));
        self.stage = Stage::Over;
    }

    #[inline]
    fn prove_by_head(&mut self, outcome: Outcome, is_whole: bool) {
        let grant = self.grant;
        let now = clock::now();
        if !is_within(outcome) || self.stack.pause.is_set() {
            self.react(now, outcome);
        }
        self.time(false, || now);
        let account = &self.stack.account;
        let changed =
            account.update(|account| account.prove_by_head(now, grant, outcome, is_whole));
        if is_whole {
            self.stage = Stage::Over;
        } else if self.stack.limits.proof == Proof::Head {
            self.stage = Stage::Proven;
        }
        match changed {
            Some(quota) if outcome == Outcome::RateExceeded => tracing::warn!(
                requests = quota.requests(),
                per = ?quota.per(),
                "too many requests (423): nothing is sent for 1 s, then `requests` in each `per`, evenly \
                 spaced, until ten minutes after the last 423"
            ),
            Some(_) => tracing::info!("no 423 for ten minutes: the whole quota holds again"),
            None => {}
        }
    }

    /// Records and logs what a 416 or 429 closes, before its permit comes back. An accepted response
    /// ends a pause.
    #[cold]
    fn react(&self, now: Instant, outcome: Outcome) {
        let stack = &self.stack;
        match outcome {
            Outcome::ConnectionsExceeded if stack.lower_sockets(now, self.grant) => {
                tracing::warn!(
                    "too many connections (416): does another client share this address?"
                );
            }
            Outcome::QuotaExceeded(hint) => {
                if let Some(wait) = stack.pause.begin(hint, now) {
                    tracing::warn!(?wait, "quota used up (429): calls of this stack wait");
                }
            }
            outcome if is_within(outcome) => stack.pause.end(now),
            _ => {}
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.finish(false);
    }
}

// === impl PermitBody ===

impl<B> PermitBody<B> {
    #[inline]
    pub(super) fn new(inner: B, permit: Option<RequestPermit>) -> Self {
        Self { inner, permit }
    }
}

impl<B: Body> Body for PermitBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut this = self.project();
        let polled = this.inner.as_mut().poll_frame(cx);
        let is_whole = match &polled {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => this.inner.is_end_stream(),
            // If a body breaks off, the service may not have finished the request.
            Poll::Ready(Some(Err(_))) => {
                drop(this.permit.take());
                false
            }
            Poll::Pending => false,
        };
        if is_whole && let Some(mut permit) = this.permit.take() {
            permit.finish(true);
        } else if let Some(permit) = this.permit {
            permit.time(polled.is_pending(), clock::now);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
