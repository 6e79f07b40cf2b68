//! Where sockets and calls are counted: at the gate, and in the ledger with the same time.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Mutex,
};

use crate::{clock::lock, ledger::Ledger, limits::Gate};

/// Gate and ledger. The lock of the gate is held while that of the ledger is taken, so that both
/// have the same order of events.
pub(crate) struct Intake {
    pub(crate) ledger: Ledger,
    pub(crate) gate: Mutex<Gate>,
}

// === impl Intake ===

impl Intake {
    /// Counts an accepted socket, and returns its number.
    pub(crate) fn open(&self, peer: SocketAddr) -> u64 {
        lock(&self.gate).open(ip(peer));
        self.ledger.socket_opened()
    }

    /// Stops counting a socket.
    pub(crate) fn close(&self, peer: SocketAddr) {
        lock(&self.gate).close(ip(peer));
        self.ledger.socket_closed();
    }
}

/// Returns the address by which limits count.
pub(crate) fn ip(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}
