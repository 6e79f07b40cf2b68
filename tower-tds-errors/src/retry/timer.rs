//! One timer a call: for the attempt, for the wait after it, and for readiness after that.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

pin_project! {
    /// Not set until something has to be waited for: an answer that is there at once costs no timer.
    pub(super) struct Timer {
        #[pin]
        sleep: Option<Sleep>,
    }
}

// === impl Timer ===

impl Timer {
    pub(super) const fn new() -> Self {
        Self { sleep: None }
    }

    pub(super) const fn is_set(&self) -> bool {
        self.sleep.is_some()
    }

    pub(super) fn set(self: Pin<&mut Self>, at: Option<Instant>) {
        self.project().sleep.set(at.map(sleep_until));
    }

    /// Whether the time it is set to has come. It never does if it is not set.
    pub(super) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.project().sleep.as_pin_mut() {
            Some(sleep) => sleep.poll(cx),
            None => Poll::Pending,
        }
    }
}
