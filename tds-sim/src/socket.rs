//! One connection of a listener: how it counts against the limits, and how faults end it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

use crate::intake::Intake;

/// Accepted connection of one of the listeners.
pub(crate) struct Socket {
    peer: SocketAddr,
    /// Number of the connection, and what counts it. Only the data listener's connections have
    /// them.
    counted: Option<(u64, Arc<Intake>)>,
    closed: AtomicBool,
    reset: AtomicBool,
    garbage: AtomicBool,
    cut: Notify,
}

// === impl Socket ===

impl Socket {
    /// Returns a connection of the auth or the admin listener, which have no limits.
    pub(crate) fn uncounted(peer: SocketAddr) -> Self {
        Self {
            peer,
            counted: None,
            closed: AtomicBool::new(false),
            reset: AtomicBool::new(false),
            garbage: AtomicBool::new(false),
            cut: Notify::new(),
        }
    }

    /// Returns a connection of the data listener, counted from here until [`close`](Self::close).
    pub(crate) fn counted(peer: SocketAddr, intake: &Arc<Intake>) -> Self {
        let mut socket = Self::uncounted(peer);
        socket.counted = Some((intake.open(peer), Arc::clone(intake)));
        socket
    }

    /// Returns the number of the connection, counted from one, if it is counted.
    pub(crate) fn number(&self) -> Option<u64> {
        self.counted.as_ref().map(|(number, _)| *number)
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Stops counting the connection. Call it before the client can read the end of the connection,
    /// because a client that then opens the next one must be within the limit.
    pub(crate) fn close(&self) {
        // Relaxed: the flag publishes nothing; the gate and the ledger have their locks.
        if let Some((_, intake)) = &self.counted
            && !self.closed.swap(true, Ordering::Relaxed)
        {
            intake.close(self.peer);
        }
    }

    /// Requests a TCP reset.
    pub(crate) fn reset(&self) {
        // Release, with the Acquire in `must_reset`: the task that `cut` wakes sees the flag.
        self.reset.store(true, Ordering::Release);
        self.cut.notify_one();
    }

    /// Requests a close without an answer.
    pub(crate) fn cut(&self) {
        self.cut.notify_one();
    }

    /// Requests bytes that are not HTTP in place of the next write.
    pub(crate) fn garble(&self) {
        // Release, with the Acquire in `is_garbled`: the next write sees the flag.
        self.garbage.store(true, Ordering::Release);
    }

    /// Waits for a requested reset or close.
    pub(crate) async fn given_up(&self) {
        self.cut.notified().await;
    }

    pub(crate) fn must_reset(&self) -> bool {
        self.reset.load(Ordering::Acquire)
    }

    pub(crate) fn is_garbled(&self) -> bool {
        self.garbage.load(Ordering::Acquire)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.close();
    }
}
