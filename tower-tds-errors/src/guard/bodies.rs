//! The bodies of a client that are being read: what is waited for where connections are too many.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};

use tokio::sync::Notify;

/// Counts the bodies that a client reads, and says when one has ended.
///
/// Give one to a [`GuardLayer`](crate::GuardLayer), which counts, and to the
/// [`RetryLayer`](crate::RetryLayer) above it. A call that is refused for too many connections then
/// waits until one of this client's own bodies has ended, and with it a connection, where it would
/// only have waited at random. Each ended body lets one call go on.
///
/// # Clone
///
/// Clones count together.
///
/// # Examples
///
/// ```
/// use tower_tds_errors::{Bodies, GuardLayer, RetryLayer};
///
/// let bodies = Bodies::new();
/// let retry = RetryLayer::new().bodies(bodies.clone());
/// let guard = GuardLayer::new().bodies(bodies.clone());
/// assert_eq!(bodies.open(), 0);
/// # drop((retry, guard));
/// ```
#[derive(Clone, Default)]
pub struct Bodies {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    open: AtomicUsize,
    waiting: AtomicUsize,
    ended: Notify,
}

/// One body that is being read, until its end or drop.
pub(super) struct Open {
    shared: Arc<Shared>,
}

/// The wait for the end of a body.
pub(crate) struct Freed {
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    // Kept for its drop, which takes it off the count.
    _waiting: Waiting,
}

struct Waiting {
    shared: Arc<Shared>,
}

// === impl Bodies ===

impl Bodies {
    /// No body is open yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many bodies are being read.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(SeqCst)
    }

    pub(super) fn opened(&self) -> Open {
        let shared = Arc::clone(&self.shared);
        // SeqCst with the loads: a count, and read by people.
        shared.open.fetch_add(1, SeqCst);
        Open { shared }
    }

    /// The end of a body, if any is open.
    pub(crate) fn freed(&self) -> Option<Freed> {
        let shared = Arc::clone(&self.shared);
        // Before the look at the open ones, and SeqCst with `Open::drop`, which does it the other
        // way round: whoever sees a body open is seen by its end.
        shared.waiting.fetch_add(1, SeqCst);
        let waiting = Waiting {
            shared: Arc::clone(&shared),
        };
        (self.open() > 0).then(|| Freed {
            ended: Box::pin(async move { shared.ended.notified().await }),
            _waiting: waiting,
        })
    }
}

impl fmt::Debug for Bodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bodies")
            .field("open", &self.open())
            .finish_non_exhaustive()
    }
}

// === impl Open ===

impl Drop for Open {
    fn drop(&mut self) {
        // Before the look at those who wait; see `Bodies::freed`.
        self.shared.open.fetch_sub(1, SeqCst);
        if self.shared.waiting.load(SeqCst) > 0 {
            self.shared.ended.notify_one();
        }
    }
}

// === impl Freed ===

impl Freed {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.ended.as_mut().poll(cx)
    }
}

// === impl Waiting ===

impl Drop for Waiting {
    fn drop(&mut self) {
        self.shared.waiting.fetch_sub(1, SeqCst);
    }
}
