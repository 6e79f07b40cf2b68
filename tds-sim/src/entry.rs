//! One data call from its count to the end of its answer.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    gate::{Gate, Verdict},
    ledger::{Ledger, Number, Outcome},
    lock::lock,
    socket::{Socket, ip},
};

/// A data call in progress. It rides in the response body; dropped, it is written off as aborted.
#[derive(Debug)]
pub(crate) struct Entry {
    gate: Arc<Mutex<Gate>>,
    ledger: Ledger,
    socket: Option<Arc<Socket>>,
    peer: SocketAddr,
    number: Number,
    at: Duration,
    admitted: bool,
    answered: bool,
    outcome: Outcome,
}

// === impl Entry ===

impl Entry {
    /// Counts a call: in the ledger first, then by the gate, at one and the same time.
    pub(crate) fn count(
        gate: &Arc<Mutex<Gate>>,
        ledger: &Ledger,
        socket: Option<Arc<Socket>>,
        peer: SocketAddr,
        target: &str,
    ) -> (Self, Verdict) {
        if let Some(socket) = &socket {
            socket.begin();
        }
        let mut counting = lock(gate);
        let (number, at) = ledger.arrive(peer, target);
        let verdict = counting.arrive(ip(peer), at);
        drop(counting);
        let entry = Self {
            gate: Arc::clone(gate),
            ledger: ledger.clone(),
            socket,
            peer,
            number,
            at,
            admitted: verdict == Verdict::Admitted,
            answered: false,
            outcome: Outcome::Aborted,
        };
        (entry, verdict)
    }

    /// When it was counted.
    pub(crate) fn at(&self) -> Duration {
        self.at
    }

    pub(crate) fn socket(&self) -> Option<&Arc<Socket>> {
        self.socket.as_ref()
    }

    /// It carries the token of this generation.
    pub(crate) fn identify(&self, generation: u64) {
        self.ledger.identify(self.number, generation);
    }

    /// It is answered with this status.
    pub(crate) fn answer(&mut self, status: u16) {
        self.answered = true;
        self.ledger.answer(self.number, status);
    }

    /// The last byte of its answer has been handed over.
    pub(crate) fn complete(mut self) {
        self.outcome = Outcome::Complete;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let ended = self.ledger.end(self.number, self.outcome, self.answered);
        if self.admitted {
            lock(&self.gate).leave(ip(self.peer), self.at, ended);
        }
        if let Some(socket) = &self.socket {
            socket.end();
        }
    }
}
