//! The wait between two attempts of tower's retry layer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

pin_project! {
    /// The wait before another attempt.
    ///
    /// # Cancel safety
    ///
    /// Dropping it gives the attempt up: nothing is sent.
    pub struct Wait {
        #[pin]
        sleep: Sleep,
    }
}

// === impl Wait ===

impl Wait {
    pub(super) fn new(wait: Duration) -> Self {
        Self { sleep: sleep(wait) }
    }
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.project().sleep.poll(cx)
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").finish_non_exhaustive()
    }
}
