//! One connection to the data endpoints, as the limits see it, and the way faults reach its wire.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

use crate::{gate::Gate, ledger::Ledger, lock::lock};

/// A connection of a client without a socket: it counts from here until it is dropped.
///
/// Made by [`Sim::connect`](crate::Sim::connect).
#[derive(Debug)]
#[must_use = "the connection counts only until it is dropped"]
pub struct Connection(Arc<Socket>);

/// An accepted connection of one of the listeners.
#[derive(Debug)]
pub(crate) struct Socket {
    peer: SocketAddr,
    counted: Option<Counted>,
    wire: Wire,
}

/// Where a connection of the data listener is counted.
#[derive(Debug)]
struct Counted {
    gate: Arc<Mutex<Gate>>,
    ledger: Ledger,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: u32,
    closed: bool,
}

/// What faults want of the bytes on the wire.
#[derive(Debug, Default)]
struct Wire {
    reset: AtomicBool,
    garbage: AtomicBool,
    cut: Notify,
}

// === impl Connection ===

impl Connection {
    pub(crate) fn new(socket: Socket) -> Self {
        Self(Arc::new(socket))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.close();
    }
}

// === impl Socket ===

impl Socket {
    /// A connection of the auth or the admin listener, which have no limits.
    pub(crate) fn uncounted(peer: SocketAddr) -> Self {
        Self {
            peer,
            counted: None,
            wire: Wire::default(),
        }
    }

    /// A connection of the data listener, counted from here until [`close`](Self::close).
    pub(crate) fn counted(peer: SocketAddr, gate: Arc<Mutex<Gate>>, ledger: Ledger) -> Self {
        lock(&gate).open(ip(peer));
        ledger.socket_opened();
        let counted = Counted {
            gate,
            ledger,
            state: Mutex::default(),
        };
        Self {
            peer,
            counted: Some(counted),
            wire: Wire::default(),
        }
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Counts the connection no longer. To be called before the client can know that it is closed,
    /// or a client that opens the next one in time would be one too many.
    pub(crate) fn close(&self) {
        let Some(counted) = &self.counted else { return };
        let mut state = lock(&counted.state);
        if state.closed {
            return;
        }
        state.closed = true;
        lock(&counted.gate).close(ip(self.peer));
        if state.requests > 0 {
            counted.ledger.socket_idle();
        }
        counted.ledger.socket_closed();
    }

    /// A request on it begins.
    pub(crate) fn begin(&self) {
        let Some(counted) = &self.counted else { return };
        let mut state = lock(&counted.state);
        state.requests = state.requests.saturating_add(1);
        if state.requests == 1 && !state.closed {
            counted.ledger.socket_busy();
        }
    }

    /// A request on it has ended.
    pub(crate) fn end(&self) {
        let Some(counted) = &self.counted else { return };
        let mut state = lock(&counted.state);
        state.requests = state.requests.saturating_sub(1);
        if state.requests == 0 && !state.closed {
            counted.ledger.socket_idle();
        }
    }

    /// Asks for a TCP reset.
    pub(crate) fn reset(&self) {
        // Release, with the Acquire in `must_reset`: who is woken by `cut` sees the flag.
        self.wire.reset.store(true, Ordering::Release);
        self.wire.cut.notify_one();
    }

    /// Asks for a close without an answer.
    pub(crate) fn cut(&self) {
        self.wire.cut.notify_one();
    }

    /// Asks for bytes that are not HTTP in place of whatever is written next.
    pub(crate) fn garble(&self) {
        // Release, with the Acquire in `is_garbled`: the next write sees the flag.
        self.wire.garbage.store(true, Ordering::Release);
    }

    /// Waits until the connection is to be given up.
    pub(crate) async fn given_up(&self) {
        self.wire.cut.notified().await;
    }

    pub(crate) fn must_reset(&self) -> bool {
        self.wire.reset.load(Ordering::Acquire)
    }

    pub(crate) fn is_garbled(&self) -> bool {
        self.wire.garbage.load(Ordering::Acquire)
    }
}

/// The address a limit is counted for.
pub(crate) fn ip(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

#[cfg(test)]
mod tests;
