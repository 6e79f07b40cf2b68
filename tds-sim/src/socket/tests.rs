use std::sync::{Arc, Mutex};

use super::Socket;
use crate::{Config, Ledger, clock::Clock, gate::Gate};

fn socket() -> (Socket, Ledger) {
    let gate = Arc::new(Mutex::new(Gate::new(&Config::default())));
    let ledger = Ledger::new(Arc::new(Clock::start(0)), 1);
    (
        Socket::counted(([127, 0, 0, 1], 1).into(), gate, ledger.clone()),
        ledger,
    )
}

fn open_and_idle(ledger: &Ledger) -> (u64, u64) {
    let summary = ledger.summary();
    (summary.sockets_open, summary.sockets_idle)
}

#[test]
fn a_socket_is_idle_without_a_request_in_progress() {
    let (socket, ledger) = socket();
    assert_eq!(open_and_idle(&ledger), (1, 1));
    socket.begin();
    socket.begin();
    assert_eq!(open_and_idle(&ledger), (1, 0));
    socket.end();
    assert_eq!(open_and_idle(&ledger), (1, 0), "the other one goes on");
    socket.end();
    assert_eq!(open_and_idle(&ledger), (1, 1));
    socket.close();
    assert_eq!(open_and_idle(&ledger), (0, 0));
}

#[test]
fn a_request_that_outlives_its_socket_changes_nothing() {
    let (socket, ledger) = socket();
    socket.begin();
    ledger.socket_opened(); // Another one, idle.
    socket.close();
    socket.close();
    assert_eq!(open_and_idle(&ledger), (1, 1));
    socket.end();
    assert_eq!(open_and_idle(&ledger), (1, 1));
}

#[test]
fn a_request_that_comes_after_its_socket_has_closed_changes_nothing() {
    let (socket, ledger) = socket();
    ledger.socket_opened(); // Another one, idle.
    socket.close();
    socket.begin();
    assert_eq!(open_and_idle(&ledger), (1, 1));
    socket.end();
    assert_eq!(open_and_idle(&ledger), (1, 1));
}
