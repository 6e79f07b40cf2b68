//! One data call from its count to the end of its answer.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http::request::Parts;

use crate::{
    clock::lock,
    intake::{Intake, ip},
    ledger::{Arrival, Number, Outcome},
    limits::Verdict,
    socket::Socket,
};

/// Data call in progress, held by the response body. If it is dropped early, the call is aborted.
pub(crate) struct Entry {
    intake: Arc<Intake>,
    pub(crate) socket: Option<Arc<Socket>>,
    peer: SocketAddr,
    number: Number,
    /// When the call was counted.
    pub(crate) at: Duration,
    admitted: bool,
    outcome: Outcome,
}

// === impl Entry ===

impl Entry {
    /// Counts a call in the ledger and then at the gate, both with the same time.
    pub(crate) fn count(
        intake: &Arc<Intake>,
        socket: Option<Arc<Socket>>,
        peer: SocketAddr,
        head: &Parts,
    ) -> (Self, Verdict) {
        let connection = socket.as_ref().and_then(|socket| socket.number());
        let mut gate = lock(&intake.gate);
        let (number, at) = intake.ledger.arrive(peer, connection, head);
        let verdict = gate.arrive(ip(peer), at);
        drop(gate);
        let entry = Self {
            intake: Arc::clone(intake),
            socket,
            peer,
            number,
            at,
            admitted: verdict == Verdict::Admitted,
            outcome: Outcome::Aborted,
        };
        (entry, verdict)
    }

    /// Adds to the record of the call.
    pub(crate) fn amend(&self, change: impl FnOnce(&mut Arrival)) {
        self.intake.ledger.amend(self.number, change);
    }

    /// Records the status of the response.
    pub(crate) fn answer(&self, status: u16) {
        self.intake.ledger.answer(self.number, status);
    }

    /// Records that the last byte of the response was handed to the connection.
    pub(crate) fn complete(mut self) {
        self.outcome = Outcome::Complete;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let ended = self.intake.ledger.end(self.number, self.outcome);
        if self.admitted {
            lock(&self.intake.gate).leave(ip(self.peer), self.at, ended);
        }
    }
}
