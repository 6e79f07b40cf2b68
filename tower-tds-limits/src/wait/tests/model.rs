//! The hand-over of the queue under every interleaving of two threads, with loom's lock.

use std::{
    future::poll_fn,
    task::{Context, Poll, Waker},
};

use loom::{future::block_on, sync::Arc, thread};
use tokio::time::Instant;

use crate::{
    error::{Decision, WaitCause},
    wait::{CallDeadline, Limit, Priority, Queue, Rank},
};

mod sync {
    pub(super) use loom::sync::{Arc, Mutex, MutexGuard};
}

/// There is no timer, because each limit here opens by events alone.
mod timer {
    use super::{Arc, Limit, shared::Shared};

    pub(super) fn spawn<L: Limit>(_: &Arc<Shared<L>>) {}
}

/// A clock that passes a whole turn with each reading, so that each turn is lost at once: the
/// worst case.
mod clock {
    use std::{cell::Cell, time::Duration};

    use tokio::time::Instant;

    thread_local! {
        static READ: Cell<Option<(Instant, u32)>> = const { Cell::new(None) };
    }

    pub(super) fn now() -> Instant {
        let (begin, times) = READ.get().unwrap_or_else(|| (Instant::now(), 0));
        READ.set(Some((begin, times + 1)));
        begin + Duration::from_millis(5) * times
    }
}

#[expect(
    clippy::duplicate_mod,
    dead_code,
    reason = "the same source, on another lock"
)]
#[path = "../shared.rs"]
mod shared;

#[expect(
    clippy::duplicate_mod,
    dead_code,
    reason = "the same source, on another lock"
)]
#[path = "../waiter.rs"]
mod waiter;

use shared::Shared;
use waiter::Waiter;

/// Limit of how many may be inside at once.
struct Room(usize);

impl Limit for Room {
    type Granted = ();

    fn opens(&mut self, _priority: Priority, now: Instant) -> (Option<Instant>, WaitCause) {
        ((self.0 > 0).then_some(now), WaitCause::InFlight)
    }

    fn admit(&mut self, _priority: Priority, _: Option<&CallDeadline>) {
        self.0 -= 1;
    }
}

fn waiter(shared: &Arc<Shared<Room>>) -> Waiter<Room> {
    Waiter::new(shared, Priority::Normal)
}

/// Waits until it passes, and gives back its permit.
fn pass(shared: &Arc<Shared<Room>>) {
    pass_by(shared, waiter(shared));
}

fn pass_by(shared: &Shared<Room>, mut waiter: Waiter<Room>) {
    let passed = block_on(poll_fn(|cx| {
        waiter.poll_pass(cx, clock::now(), None, usize::MAX, true)
    }));
    passed.expect("any number may wait");
    give_back(shared);
}

/// Polls a waiter at most this many times, each time after a wake, and then drops it.
fn pass_or_leave(shared: &Arc<Shared<Room>>, polls: usize) {
    let (mut waiter, mut left) = (waiter(shared), polls);
    let passed = block_on(poll_fn(|cx| {
        let polled = waiter.poll_pass(cx, clock::now(), None, usize::MAX, true);
        left -= 1;
        match polled {
            Poll::Ready(passed) => Poll::Ready(passed.is_ok()),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    }));
    if passed {
        give_back(shared);
    }
}

/// Skips a waiter once, then lets it wait.
fn skip_and_pass(shared: &Arc<Shared<Room>>) {
    let mut waiter = waiter(shared);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..2 {
        let skipped = waiter.poll_pass(&mut cx, clock::now(), None, usize::MAX, false);
        assert!(skipped.is_pending(), "it is not ready");
    }
    pass_by(shared, waiter);
}

fn give_back(shared: &Shared<Room>) {
    shared.update(|room| room.0 += 1);
}

/// Explores every interleaving with two preemptions. With more the exploration does not end,
/// because time passes with each reading.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(check);
}

fn all_is_back(shared: &Shared<Room>) {
    let (room, waiting) = shared.read(|room, waiting| (room.0, waiting));
    assert_eq!((room, waiting), (1, 0));
}

#[test]
fn returned_permit_reaches_each_waiter() {
    model(|| {
        let shared = Arc::new(Shared::new(Room(1)));
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || pass(&other));
        pass(&shared);
        thread.join().expect("it passes");
        all_is_back(&shared);
    });
}

#[test]
fn waiter_cancelled_at_any_poll_hands_the_permit_on() {
    for polls in 1..=3 {
        model(move || {
            let shared = Arc::new(Shared::new(Room(1)));
            let (one, other) = (Arc::clone(&shared), Arc::clone(&shared));
            let passes = thread::spawn(move || pass(&one));
            let cancelled = thread::spawn(move || pass_or_leave(&other, polls));
            pass(&shared);
            passes.join().expect("it passes");
            cancelled.join().expect("it leaves");
            all_is_back(&shared);
        });
    }
}

#[test]
fn a_skipped_waiter_hands_the_permit_on() {
    model(|| {
        let shared = Arc::new(Shared::new(Room(1)));
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || skip_and_pass(&other));
        pass(&shared);
        thread.join().expect("it passes");
        all_is_back(&shared);
    });
}
