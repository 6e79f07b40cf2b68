//! Permit of one sent request, and the response body that holds it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_tds_outcome::Outcome;

use crate::{
    account::{
        Account, Grant,
        reactions::{Begins, is_within},
    },
    clock::{self, nanos},
    events,
    limiter::Stack,
};

/// Permit of one sent request. Its methods and its drop record each stage in the account once.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    stack: Arc<Stack>,
    pub(super) grant: Grant,
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
    /// Response body that holds the place of its request among those in flight.
    ///
    /// The place is free at the end of the body, at an error, or when you drop the body. A body
    /// that has already ended when the head arrives holds none, and neither does the default.
    ///
    /// # Cancel safety
    /// Dropping it frees the place at once. The permits of the quotas are held for as
    /// long as [`Proof`](crate::Proof) demands.
    ///
    /// # Errors
    /// Those of the inner body.
    #[derive(Debug, Default)]
    pub struct PermitBody<B> {
        #[pin]
        inner: B,
        // Also kept for its drop, which frees the place.
        permit: Option<RequestPermit>,
    }
}

// === impl RequestPermit ===

impl RequestPermit {
    #[inline]
    pub(super) fn new(stack: &Arc<Stack>, grant: Grant) -> Self {
        Self {
            stack: Arc::clone(stack),
            grant,
            stage: Stage::Sent,
            took: 0,
            pending_since: None,
        }
    }

    /// How long the request may still be counted after its call has ended without a response.
    pub(super) fn lost_after(&self) -> Duration {
        self.stack.limits.lost_after
    }

    /// Records an outcome. `is_whole` is set for an error, and for a response whose body has ended.
    /// Returns whether the body has to hold the permit; if not, the permit is to be dropped.
    #[inline]
    pub(super) fn record(&mut self, outcome: Outcome, is_whole: bool) -> bool {
        match outcome {
            Outcome::Unsent => self.withdraw(),
            // After such an outcome neither the head nor the end of the body is a proof.
            Outcome::Lost => return false,
            outcome => self.prove_by_head(outcome, is_whole),
        }
        self.stage != Stage::Over
    }

    /// Records whether the body is pending, if the call's deadline ends with it.
    #[inline]
    fn time(&mut self, is_pending: bool) {
        if !self.grant.has_body {
            return;
        }
        if is_pending {
            self.pending_since.get_or_insert_with(clock::now);
        } else if let Some(since) = self.pending_since.take() {
            self.took += nanos(clock::now().saturating_duration_since(since));
        }
    }

    /// Records the end of the response body, which proves an unproven request.
    pub(super) fn prove_by_end(mut self) {
        let (grant, took, stage) = (self.grant, self.took, self.stage);
        if stage == Stage::Proven && !grant.has_body {
            // The drop needs no clock.
            return;
        }
        self.stage = Stage::Over;
        self.stack.account.update_now(|account, now| {
            if grant.has_body {
                account.learn(now, grant, took, false);
            }
            match stage {
                Stage::Sent => account.prove_by_end(now, grant),
                Stage::Proven => account.end(),
                Stage::Over => {}
            }
        });
    }

    /// Records that its deadline has ended the call, before the response.
    #[cold]
    pub(super) fn cut(&self) {
        let cut = |account: &mut Account, now| account.learn(now, self.grant, u64::MAX, true);
        self.stack.account.update_now(cut);
    }

    /// Records that the peer has ended the connection instead of answering.
    pub(super) fn end(&mut self) {
        let after = ENDED.min(self.lost_after());
        let lose = |account: &mut Account, now| account.lose(now, self.grant, after);
        self.stack.account.update_now(lose);
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
        // The clock is read before the lock, which is then held for half as long.
        let now = clock::now();
        if !is_within(outcome) || self.stack.pause.is_set() {
            self.react(now, outcome);
        }
        let account = &self.stack.account;
        let effect = account.update(|account| account.prove_by_head(now, grant, outcome, is_whole));
        self.took = effect.took;
        if is_whole {
            self.stage = Stage::Over;
        } else if effect.proven {
            self.stage = Stage::Proven;
        }
        if effect.restored {
            events::restored();
        }
    }

    /// Records and logs what a refusal closes, before its permit comes back. An accepted response
    /// ends a pause.
    #[cold]
    fn react(&self, now: Instant, outcome: Outcome) {
        let pause = &self.stack.pause;
        match outcome {
            Outcome::RateExceeded | Outcome::ConnectionsExceeded => {}
            Outcome::QuotaExceeded(hint) => {
                return pause.begin(hint, now).into_iter().for_each(events::paused);
            }
            outcome if is_within(outcome) => return pause.end(now),
            _ => return,
        }
        match self.stack.react(now, self.grant, outcome) {
            Begins::Nothing => {}
            Begins::LowerRate => {
                let account = &self.stack.account;
                let ((quota, _), certificate) =
                    account.read(|account, _| (account.believed(), account.certificate()));
                events::lowered(quota, certificate);
            }
            Begins::FewerSockets => events::connections_refused(),
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let is_timed = self.took > 0 && self.grant.has_body;
        let account = &self.stack.account;
        match self.stage {
            Stage::Over => return,
            Stage::Proven if !is_timed => return account.update(Account::end),
            Stage::Sent | Stage::Proven => {}
        }
        self.time(false);
        let (grant, took, stage) = (self.grant, self.took, self.stage);
        let after = self.lost_after();
        self.stack.account.update_now(|account, now| {
            if is_timed {
                account.learn(now, grant, took, true);
            }
            match stage {
                Stage::Sent => account.lose(now, grant, after),
                Stage::Proven => account.end(),
                Stage::Over => {}
            }
        });
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
        if let Some(permit) = this.permit.as_mut() {
            permit.time(polled.is_pending());
        }
        let frame = ready!(polled);
        match &frame {
            Some(Ok(_)) if !this.inner.is_end_stream() => return Poll::Ready(frame),
            Some(Ok(_)) | None => {
                if let Some(permit) = this.permit.take() {
                    permit.prove_by_end();
                }
            }
            // If a body breaks off, the service may not have finished the request.
            Some(Err(_)) => drop(this.permit.take()),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// How long after the peer has ended a connection its request may still be counted by what is behind
/// it, which is an assumption like that about a 504.
const ENDED: Duration = Duration::from_millis(500);
