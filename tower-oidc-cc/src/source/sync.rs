//! Locks and atomics; loom's in the model test.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::time::{Instant, Sleep, sleep_until};

pub(super) use std::sync::{Mutex, MutexGuard};

pub(super) use arc_swap::{ArcSwapOption, Guard};
pub(super) use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    time::{timeout, timeout_at},
};

/// A timer that may be polled on one runtime and then on another, as a kept service is.
#[derive(Debug)]
pub(super) struct Patience {
    /// `None` if it never ends.
    until: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

// === impl Patience ===

impl Patience {
    pub(super) fn new(until: Option<Instant>) -> Self {
        Self { until, timer: None }
    }

    /// Resolves when it is over. Outside of a runtime there is no clock to go by.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (Some(until), Ok(_)) = (self.until, Handle::try_current()) else {
            return Poll::Pending;
        };
        // Anew at each look, which are few: a timer panics when its runtime is gone, and does not
        // run where its runtime is not driven.
        let timer = self.timer.insert(Box::pin(sleep_until(until)));
        timer.as_mut().poll(cx)
    }
}
