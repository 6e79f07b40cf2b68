//! The gate under every interleaving of threads, with loom's lock.

use std::{future::poll_fn, task::Poll};

use loom::{future::block_on, sync::Arc, thread};
use tokio::time::Instant;

use crate::gate::{Admit, Earliest, Line, waiters};

mod sync {
    pub(super) use loom::sync::{Mutex, MutexGuard};
}

#[expect(
    clippy::duplicate_mod,
    dead_code,
    reason = "the gate as it is, on another lock"
)]
#[path = "../shared.rs"]
mod shared;

use shared::{Gate, Pass};

/// So many may be inside at once.
struct Room(usize);

impl Admit for Room {
    type Grant = ();

    fn earliest(&mut self, _now: Instant) -> Earliest {
        match self.0 {
            0 => Earliest::OnReturn,
            _ => Earliest::Now,
        }
    }

    fn admit(&mut self, _now: Instant) {
        self.0 -= 1;
    }

    fn admit_undated(&mut self) -> Option<()> {
        self.0.checked_sub(1).map(|room| self.0 = room)
    }
}

/// Waits for its turn, as a waiter does.
fn pass(gate: &Gate<Room>, line: Line) {
    let mut place = None;
    block_on(poll_fn(|cx| {
        match gate.pass(&mut place, line, cx.waker()) {
            Pass::Granted(()) => Poll::Ready(()),
            Pass::Wait(_) => Poll::Pending,
        }
    }));
}

/// Asks once, and leaves if it is not let in. Says whether it was.
fn ask_and_leave(gate: &Gate<Room>, line: Line) -> bool {
    let mut place = None;
    block_on(poll_fn(|cx| {
        Poll::Ready(match gate.pass(&mut place, line, cx.waker()) {
            Pass::Granted(()) => true,
            Pass::Wait(_) => {
                if let Some(key) = place.take() {
                    gate.leave(key, line);
                }
                false
            }
        })
    }))
}

fn put_back(gate: &Gate<Room>) {
    gate.update(|room| room.0 += 1);
}

#[test]
fn what_is_given_back_reaches_whoever_waits() {
    loom::model(|| {
        let gate = Arc::new(Gate::new(Room(1)));
        let other = Arc::clone(&gate);
        let thread = thread::spawn(move || {
            pass(&other, Line::Back);
            put_back(&other);
        });
        pass(&gate, Line::Back);
        put_back(&gate);
        thread.join().expect("it passes");
        assert_eq!(gate.read(|room, waiting| (room.0, waiting)), (1, 0));
    });
}

#[test]
fn one_who_goes_before_those_who_wait_hands_the_turn_on() {
    loom::model(|| {
        let gate = Arc::new(Gate::new(Room(0)));
        let (urgent, waiter) = (Arc::clone(&gate), Arc::clone(&gate));
        let goes_first = thread::spawn(move || {
            pass(&urgent, Line::Front);
            put_back(&urgent);
        });
        let waits = thread::spawn(move || {
            pass(&waiter, Line::Back);
            put_back(&waiter);
        });
        put_back(&gate);
        goes_first.join().expect("it passes");
        waits.join().expect("it passes");
        assert_eq!(gate.read(|room, waiting| (room.0, waiting)), (1, 0));
    });
}

#[test]
fn whoever_leaves_hands_the_turn_on() {
    for line in [Line::Back, Line::Front] {
        loom::model(move || leaves_and_waits(line));
    }
}

fn leaves_and_waits(line: Line) {
    let gate = Arc::new(Gate::new(Room(0)));
    let (leaver, waiter) = (Arc::clone(&gate), Arc::clone(&gate));
    let leaves = thread::spawn(move || {
        if ask_and_leave(&leaver, line) {
            put_back(&leaver);
        }
    });
    let waits = thread::spawn(move || pass(&waiter, Line::Back));
    put_back(&gate);
    leaves.join().expect("it leaves");
    waits.join().expect("it passes");
    assert_eq!(gate.read(|room, waiting| (room.0, waiting)), (0, 0));
}
