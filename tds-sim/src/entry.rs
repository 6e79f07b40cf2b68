//! One data call from its count to the end of its answer.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use crate::{
    ledger::{Number, Outcome},
    limits::Verdict,
    shared::{Shared, lock},
    socket::{Socket, ip},
};

/// A data call in progress, held by the response body. If it is dropped early, the call is aborted.
pub(crate) struct Entry {
    shared: Arc<Shared>,
    pub(crate) socket: Option<Arc<Socket>>,
    peer: SocketAddr,
    number: Number,
    /// When it was counted.
    pub(crate) at: Duration,
    admitted: bool,
    outcome: Outcome,
}

// === impl Entry ===

impl Entry {
    /// Counts a call in the ledger and then at the gate, both with the same time.
    pub(crate) fn count(
        shared: &Arc<Shared>,
        socket: Option<Arc<Socket>>,
        peer: SocketAddr,
        target: &str,
    ) -> (Self, Verdict) {
        let mut gate = lock(&shared.gate);
        let (number, at) = shared.ledger.arrive(peer, target);
        let verdict = gate.arrive(ip(peer), at);
        drop(gate);
        let entry = Self {
            shared: Arc::clone(shared),
            socket,
            peer,
            number,
            at,
            admitted: verdict == Verdict::Admitted,
            outcome: Outcome::Aborted,
        };
        (entry, verdict)
    }

    /// Records the generation of the call's token.
    pub(crate) fn identify(&self, generation: u64) {
        self.shared.ledger.identify(self.number, generation);
    }

    /// Records the status of the response.
    pub(crate) fn answer(&self, status: u16) {
        self.shared.ledger.answer(self.number, status);
    }

    /// Records that the last byte of the response was handed to the connection.
    pub(crate) fn complete(mut self) {
        self.outcome = Outcome::Complete;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let ended = self.shared.ledger.end(self.number, self.outcome);
        if self.admitted {
            lock(&self.shared.gate).leave(ip(self.peer), self.at, ended);
        }
    }
}
