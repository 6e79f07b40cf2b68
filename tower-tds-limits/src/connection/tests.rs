//! A socket that is asked to leave, under every interleaving of threads with three switches, or
//! with as many as `LOOM_MAX_PREEMPTIONS` says, on loom's lock and flag.
//!
//! How it is asked, which one is, and who reads from it are the real ones. The gate between them,
//! which has a model of its own, is a lock and the one connect that waits.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]

use std::{
    future::poll_fn,
    sync::{Arc, PoisonError},
    task::{Poll, Waker},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use loom::{future::block_on, sync::MutexGuard, thread};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    time::Instant,
};
use tokio_test::{assert_pending, task};

use super::{closing, exchange, goodbye};

mod sync {
    pub(super) use loom::sync::{Mutex, atomic::AtomicBool};
}

#[expect(clippy::duplicate_mod, reason = "as it is, on another lock and flag")]
#[path = "exit.rs"]
mod exit;

#[expect(clippy::duplicate_mod, dead_code, reason = "as it is, with that exit")]
#[path = "sockets.rs"]
mod sockets;

#[expect(clippy::duplicate_mod, dead_code, reason = "as it is, with that exit")]
#[path = "watched.rs"]
mod watched;

use self::{
    exit::{Exit, wake_readers},
    sockets::{Rest, SocketKey, Sockets},
    sync::Mutex,
    watched::{Origin, Watched},
};

type Socket = Watched<TokioIo<DuplexStream>>;

/// The place of one socket, and a connect that waits for it.
struct Gate {
    state: Mutex<State>,
    start: Instant,
}

#[derive(Default)]
struct State {
    sockets: Sockets,
    is_free: bool,
    waiter: Option<Waker>,
}

struct ConnectionPermit {
    gate: Arc<Gate>,
    key: Option<SocketKey>,
}

// === impl Gate ===

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            start: Instant::now(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update<T>(&self, event: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let told = event(&mut state);
        let waiter = state.waiter.take();
        drop(state);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        told
    }

    /// Waits for the place, and asks whoever rests in it to leave.
    fn connect(&self) {
        block_on(poll_fn(|cx| {
            let mut state = self.lock();
            if state.is_free {
                return Poll::Ready(());
            }
            state.waiter = Some(cx.waker().clone());
            let long_after = self.start + Duration::from_secs(60);
            let asked = state.sockets.ask_one(long_after);
            drop(state);
            wake_readers(asked.into_iter().collect());
            Poll::Pending
        }));
    }

    /// As after a 416.
    fn shed(&self) {
        let asked = self.lock().sockets.ask_free();
        wake_readers(asked);
    }

    /// A socket that carries nothing yet, and the server's end of it.
    fn open(self: &Arc<Self>) -> (Socket, DuplexStream) {
        let (client, server) = duplex(256);
        let permit = ConnectionPermit {
            gate: Arc::clone(self),
            key: None,
        };
        (
            Watched::new(TokioIo::new(client), permit, Origin::Background),
            server,
        )
    }
}

// === impl ConnectionPermit ===

impl ConnectionPermit {
    fn opened(&mut self, exit: &Arc<Exit>) {
        self.key = Some(self.gate.lock().sockets.add(Arc::clone(exit)));
    }

    fn rest(&self, rest: Rest) {
        let Some(key) = self.key else { return };
        let start = self.gate.start;
        self.gate
            .update(|state| state.sockets.rest(key, rest, start));
    }

    fn work(&self) {
        let Some(key) = self.key else { return };
        // There is no other to be asked in its place.
        self.gate.update(|state| state.sockets.work(key));
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let key = self.key.take();
        self.gate.update(|state| {
            if let Some(key) = key {
                state.sockets.remove(key);
            }
            state.is_free = true;
        });
    }
}

fn model(threads: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound.get_or_insert(3);
    model.check(threads);
}

#[test]
fn whoever_is_asked_while_it_begins_to_wait_sees_it_or_is_woken() {
    model(|| {
        let gate = Gate::new();
        let (mut socket, server) = gate.open();
        let other = Arc::clone(&gate);
        let waits = thread::spawn(move || other.connect());
        let read = block_on(socket.read_u8());
        read.expect_err("the end");
        drop((socket, server));
        waits.join().expect("it has the place");
        assert_eq!(gate.lock().sockets.leaving(), 0);
    });
}

#[test]
fn whoever_is_asked_by_two_leaves_once() {
    model(|| {
        let gate = Gate::new();
        let (mut socket, server) = gate.open();
        let (one, another) = (Arc::clone(&gate), Arc::clone(&gate));
        let waits = thread::spawn(move || one.connect());
        let sheds = thread::spawn(move || another.shed());
        let read = block_on(socket.read_u8());
        read.expect_err("the end");
        assert_eq!(gate.lock().sockets.leaving(), 1);
        drop((socket, server));
        waits.join().expect("it has the place");
        sheds.join().expect("it asks");
        assert_eq!(gate.lock().sockets.leaving(), 0);
    });
}

#[test]
fn a_request_before_the_reader_has_looked_keeps_the_socket_until_it_is_answered() {
    model(|| {
        let gate = Gate::new();
        let (mut socket, mut server) = gate.open();
        let other = Arc::clone(&gate);
        let waits = thread::spawn(move || other.connect());
        block_on(async {
            if task::spawn(socket.read_u8()).poll().is_ready() {
                return;
            }
            let request = b"GET / HTTP/1.1\r\n\r\n";
            socket.write_all(request).await.expect("an open socket");
            assert_pending!(task::spawn(socket.read_u8()).poll(), "it is awaited");
            let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
            server.write_all(answer).await.expect("an open socket");
            let mut read = vec![0; answer.len()];
            socket.read_exact(&mut read).await.expect("an answer");
            socket.read_u8().await.expect_err("the end");
        });
        drop((socket, server));
        waits.join().expect("it has the place");
        assert_eq!(gate.lock().sockets.leaving(), 0);
    });
}
