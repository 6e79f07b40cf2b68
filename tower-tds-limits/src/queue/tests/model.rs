//! The queue under every interleaving of threads, with loom's lock.

use std::{
    future::poll_fn,
    task::{Poll, Waker},
};

use loom::{future::block_on, sync::Arc, thread};
use tokio::time::Instant;

use crate::{
    WaitCause,
    queue::{Limit, Line, Opens, rows},
    waits::{Over, Waits},
};

mod sync {
    pub(super) use loom::sync::{Mutex, MutexGuard};
}

/// Time passes with each look, so that whoever has been called is passed over at once: the worst
/// that can happen, where the real queue waits for a few milliseconds.
mod clock {
    use std::{cell::Cell, time::Duration};

    use tokio::time::Instant;

    thread_local! {
        static LOOKS: Cell<Option<(Instant, u32)>> = const { Cell::new(None) };
    }

    pub(super) fn now() -> Instant {
        let (begin, looks) = LOOKS.get().unwrap_or_else(|| (Instant::now(), 0));
        LOOKS.set(Some((begin, looks + 1)));
        begin + Duration::from_millis(5) * looks
    }
}

#[expect(
    clippy::duplicate_mod,
    dead_code,
    reason = "the queue as it is, on another lock"
)]
#[path = "../shared.rs"]
mod shared;

use shared::Queue;

/// So many may be inside at once.
struct Room(usize);

impl Limit for Room {
    type Grant = ();

    fn opens(&mut self, _line: Line, _now: Instant) -> Opens {
        match self.0 {
            0 => Opens::OnReturn,
            _ => Opens::Now,
        }
    }

    fn admit(&mut self, _now: Instant) {
        self.0 -= 1;
    }

    fn withdraw(&mut self, (): ()) {
        self.0 += 1;
    }

    fn cause(&mut self, _line: Line, _now: Instant) -> WaitCause {
        WaitCause::InFlight
    }
}

fn queue(room: usize) -> Arc<Queue<Room>> {
    Arc::new(Queue::new(Room(room)))
}

/// Waits for its turn, as a waiter does.
fn pass(queue: &Queue<Room>, line: Line) {
    let mut place = None;
    block_on(poll_fn(|cx| {
        match queue.pass(&mut place, line, cx.waker()) {
            Ok(()) => Poll::Ready(()),
            Err(_) => Poll::Pending,
        }
    }));
}

/// Asks once, and leaves if it is not let in. Says whether it was.
fn ask_and_leave(queue: &Queue<Room>, line: Line) -> bool {
    let mut place = None;
    block_on(poll_fn(|cx| {
        Poll::Ready(match queue.pass(&mut place, line, cx.waker()) {
            Ok(()) => true,
            Err(key) => {
                let _ = queue.leave(key);
                false
            }
        })
    }))
}

fn put_back(queue: &Queue<Room>) {
    queue.update(|room| room.0 += 1);
}

/// Every interleaving with two switches that nobody asked for: time passes with each look, so that
/// there is no end to them otherwise.
fn model(threads: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(threads);
}

#[test]
fn what_is_given_back_reaches_whoever_waits() {
    model(|| {
        let queue = queue(1);
        let other = Arc::clone(&queue);
        let thread = thread::spawn(move || {
            pass(&other, Line::Back);
            put_back(&other);
        });
        pass(&queue, Line::Back);
        put_back(&queue);
        thread.join().expect("it passes");
        assert_eq!(queue.read_all(|room, waiting, _| (room.0, waiting)), (1, 0));
    });
}

#[test]
fn one_who_goes_before_those_who_wait_hands_the_turn_on() {
    model(|| {
        let queue = queue(0);
        let (urgent, waiter) = (Arc::clone(&queue), Arc::clone(&queue));
        let goes_first = thread::spawn(move || {
            pass(&urgent, Line::Front);
            put_back(&urgent);
        });
        let waits = thread::spawn(move || {
            pass(&waiter, Line::Back);
            put_back(&waiter);
        });
        put_back(&queue);
        goes_first.join().expect("it passes");
        waits.join().expect("it passes");
        assert_eq!(queue.read_all(|room, waiting, _| (room.0, waiting)), (1, 0));
    });
}

#[test]
fn whoever_leaves_hands_the_turn_on() {
    for line in [Line::Back, Line::Front] {
        model(move || leaves_and_waits(line));
    }
}

fn leaves_and_waits(line: Line) {
    let queue = queue(0);
    let (leaver, waiter) = (Arc::clone(&queue), Arc::clone(&queue));
    let leaves = thread::spawn(move || {
        if ask_and_leave(&leaver, line) {
            put_back(&leaver);
        }
    });
    let waits = thread::spawn(move || pass(&waiter, Line::Back));
    put_back(&queue);
    leaves.join().expect("it leaves");
    waits.join().expect("it passes");
    assert_eq!(queue.read_all(|room, waiting, _| (room.0, waiting)), (0, 0));
}

/// One that is polled once and kept, and never again.
#[test]
fn one_that_never_looks_stops_nobody() {
    model(|| {
        let queue = queue(0);
        let (kept, waiter) = (Arc::clone(&queue), Arc::clone(&queue));
        let keeps = thread::spawn(move || {
            let mut place = None;
            match kept.pass(&mut place, Line::Back, Waker::noop()) {
                // It has one of two, and keeps it.
                Ok(()) => 1,
                Err(_) => 0,
            }
        });
        let waits = thread::spawn(move || pass(&waiter, Line::Back));
        put_back(&queue);
        put_back(&queue);
        // Whoever keeps the time looks a while later.
        put_back(&queue);
        let held = keeps.join().expect("it keeps its place");
        waits.join().expect("it passes");
        assert_eq!(queue.read(|room| room.0), 2 - held);
    });
}
