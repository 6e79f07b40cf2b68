//! A service that checks the contract of `tower::Service`.

use std::{
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use http::{Request, Response};
use tower::Service;

use super::{Body, seen};

/// Panics on a call without readiness. A clone is not ready. Every other `poll_ready` is pending (and
/// wakes), and one can be set to fail.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    ready: bool,
    polls: usize,
    fail_at: Option<usize>,
    pub(crate) calls: Arc<AtomicUsize>,
    pub(crate) readied: Arc<AtomicUsize>,
}

/// Error of a readiness poll.
pub(crate) type Broken = std::fmt::Error;

// === impl Probe ===

impl Probe {
    /// Fails the readiness poll of this number, from zero.
    pub(crate) fn failing_at(poll: usize) -> Self {
        Self {
            fail_at: Some(poll),
            ..Self::default()
        }
    }
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        Self {
            ready: false,
            polls: 0,
            fail_at: self.fail_at,
            calls: Arc::clone(&self.calls),
            readied: Arc::clone(&self.readied),
        }
    }
}

impl Service<Request<Body>> for Probe {
    type Response = Response<String>;
    type Error = Broken;
    type Future = Ready<Result<Self::Response, Broken>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        if self.ready {
            return Poll::Ready(Ok(()));
        }
        let poll = self.polls;
        self.polls += 1;
        if self.fail_at == Some(poll) {
            return Poll::Ready(Err(std::fmt::Error));
        }
        if poll.is_multiple_of(2) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.ready = true;
        self.readied.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        assert!(self.ready, "called without readiness");
        self.ready = false;
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Response::new(seen(&request))))
    }
}
