//! The hand-over of the queue under every interleaving of two threads, with loom's lock.

use std::{
    future::poll_fn,
    task::{Poll, Waker},
};

use loom::{future::block_on, sync::Arc, thread};
use tokio::time::Instant;

use crate::{
    WaitCause,
    wait::{Full, Limit, Line, Opens, Refusal, queue},
};

mod sync {
    pub(super) use loom::sync::{Mutex, MutexGuard};
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

use shared::{Passed, Shared};

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

    fn admit(&mut self, _line: Line, _now: Instant) {
        self.0 -= 1;
    }

    fn cause(&mut self, _line: Line, _now: Instant) -> WaitCause {
        WaitCause::InFlight
    }
}

type Place = Option<queue::Place>;

fn poll(shared: &Shared<Room>, place: &mut Place, waker: &Waker) -> Poll<()> {
    let passed = shared.pass(place, Line::Back, usize::MAX, clock::now(), waker);
    match passed.expect("any number may wait") {
        Passed::Granted(()) => Poll::Ready(()),
        Passed::Waits { .. } => Poll::Pending,
    }
}

/// Waits until it passes, and gives back its place inside.
fn pass(shared: &Shared<Room>) {
    let mut place = None;
    block_on(poll_fn(|cx| poll(shared, &mut place, cx.waker())));
    give_back(shared);
}

/// Is polled so many times at most, each time after a wake, and then dropped.
fn pass_or_leave(shared: &Shared<Room>, polls: usize) {
    let (mut place, mut left) = (None, polls);
    let passed = block_on(poll_fn(|cx| {
        let polled = poll(shared, &mut place, cx.waker());
        left -= 1;
        match polled {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    }));
    if passed {
        give_back(shared);
    } else if let Some(place) = place {
        shared.leave(place);
    }
}

/// Is skipped once, and waits then.
fn skip_and_pass(shared: &Shared<Room>) {
    let mut place = None;
    for _ in 0..2 {
        let skipped = shared.skip(&mut place, Line::Back, usize::MAX);
        skipped.expect("any number may wait");
    }
    block_on(poll_fn(|cx| poll(shared, &mut place, cx.waker())));
    give_back(shared);
}

fn give_back(shared: &Shared<Room>) {
    shared.update(|room| room.0 += 1);
}

/// Explores every interleaving with two preemptions. More do not end, since time passes with each
/// reading.
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
fn a_permit_that_is_given_back_reaches_each_waiter() {
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
fn a_waiter_that_is_cancelled_at_any_point_hands_the_permit_on() {
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
