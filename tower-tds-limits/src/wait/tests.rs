mod model;

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use tokio::time::sleep;
use tokio_test::{assert_pending, assert_ready_ok, task};

use super::{shared::Shared, waiter::Waiter, *};

/// Lets `free` pass, and one more at each instant in `at`.
#[derive(Default)]
struct Script {
    free: usize,
    at: Vec<Instant>,
    usual: Duration,
}

impl Limit for Script {
    type Granted = ();

    fn opens(&mut self, _priority: Priority, now: Instant) -> (Option<Instant>, WaitCause) {
        while self.at.first().is_some_and(|at| *at <= now) {
            self.at.remove(0);
            self.free += 1;
        }
        let is_open = self.free > 0;
        let opens = if is_open { Some(&now) } else { self.at.first() };
        (opens.copied(), WaitCause::InFlight)
    }

    fn admit(&mut self, _priority: Priority, _: Option<&CallDeadline>) {
        self.free = self.free.saturating_sub(1);
    }

    fn usual(&self, _deadline: &CallDeadline) -> Duration {
        self.usual
    }
}

fn limit(free: usize) -> Arc<Shared<Script>> {
    Arc::new(Shared::new(Script {
        free,
        ..Script::default()
    }))
}

fn waiter(shared: &Arc<Shared<Script>>) -> Waiter<Script> {
    Waiter::new(shared, Priority::Normal)
}

fn poll(waiter: &mut Waiter<Script>, cx: &mut Context<'_>) -> Poll<Result<(), Decision>> {
    waiter.poll_pass(cx, clock::now(), None, usize::MAX, true)
}

/// Polls a waiter whose call is not ready.
fn skip(waiter: &mut Waiter<Script>, cx: &mut Context<'_>) -> Poll<Result<(), Decision>> {
    waiter.poll_pass(cx, clock::now(), None, usize::MAX, false)
}

fn give_back(shared: &Shared<Script>) {
    shared.update(|script| script.free += 1);
}

/// A task that polls one waiter, which it owns.
macro_rules! pass {
    ($waiter:expr) => {{
        let mut waiter = $waiter;
        task::spawn(poll_fn(move |cx| poll(&mut waiter, cx)))
    }};
}

/// A waiter whose call ends so soon, or never.
fn due_in(mut waiter: Waiter<Script>, millis: Option<u64>) -> impl Future<Output = bool> {
    let deadline = millis.map(|millis| {
        let whole = Duration::from_millis(millis);
        let at = clock::now() + whole;
        CallDeadline {
            at,
            whole,
            has_body: false,
        }
    });
    poll_fn(move |cx| {
        waiter
            .poll_pass(cx, clock::now(), deadline.as_ref(), usize::MAX, true)
            .map(|passed| passed.is_ok())
    })
}

#[tokio::test(start_paused = true)]
async fn the_call_that_must_start_first_passes_first_and_nothing_starves() {
    let shared = limit(0);
    shared.update(|script| script.usual = Duration::from_millis(100));
    let mut waiters = Vec::new();
    // The first one has waited for a minute by then, and comes before all but token requests, which come by arrival.
    for (priority, deadline, after) in [
        (Priority::Normal, None, 59_000),
        (Priority::Normal, None, 500),
        (Priority::Normal, Some(9_000), 500),
        (Priority::Normal, Some(1_000), 0),
        (Priority::Normal, Some(1_000), 0),
        (Priority::High, Some(9_000), 0),
        (Priority::High, Some(1_000), 0),
    ] {
        let waiter = due_in(Waiter::new(&shared, priority), deadline);
        let mut waiter = task::spawn(Box::pin(waiter));
        assert_pending!(waiter.poll());
        waiters.push(waiter);
        sleep(Duration::from_millis(after)).await;
    }
    for next in [5, 6, 0, 3, 4, 2, 1] {
        give_back(&shared);
        let woken: Vec<_> = waiters.iter().map(|waiter| waiter.is_woken()).collect();
        let passes = woken[next] && waiters[next].poll().is_ready();
        assert!(passes, "{next}: {woken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_does_not_pass_a_woken_waiter() {
    let shared = limit(0);
    let mut first = pass!(waiter(&shared));
    assert_pending!(first.poll());
    give_back(&shared);
    let mut newcomer = pass!(waiter(&shared));
    assert_pending!(newcomer.poll());
    assert_ready_ok!(first.poll());
    give_back(&shared);
    assert_ready_ok!(newcomer.poll());
}

/// Waiters that are polled once and kept.
fn kept(shared: &Arc<Shared<Script>>, count: usize) -> Vec<Waiter<Script>> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut kept: Vec<_> = (0..count).map(|_| waiter(shared)).collect();
    for waiter in &mut kept {
        assert_pending!(poll(waiter, &mut cx));
    }
    kept
}

#[tokio::test(start_paused = true)]
async fn unpolled_waiters_delay_the_next_by_ten_milliseconds() {
    for count in [1, 10, 1_000] {
        let shared = limit(0);
        let mut kept = kept(&shared, count);
        let mut polled = waiter(&shared);
        let passes = tokio::spawn(async move {
            poll_fn(|cx| poll(&mut polled, cx))
                .await
                .expect("it has a rank");
        });
        tokio::task::yield_now().await;
        let begin = Instant::now();
        give_back(&shared);
        passes.await.expect("no panic");
        let took = begin.elapsed();
        // A timer rounds up to the next millisecond.
        assert!(took <= Duration::from_millis(12), "{count}: {took:?}");
        // The kept waiters pass when they are polled, before all later ones.
        let mut later = pass!(waiter(&shared));
        assert_pending!(later.poll());
        give_back(&shared);
        let mut cx = Context::from_waker(Waker::noop());
        assert_ready_ok!(poll(&mut kept[0], &mut cx));
    }
}

#[tokio::test(start_paused = true)]
async fn the_timer_ends_with_its_limit() {
    let shared = limit(0);
    let mut pass = pass!(waiter(&shared));
    assert_pending!(pass.poll());
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    sleep(Duration::from_millis(1)).await;
    assert_eq!(tasks(), 1);
    drop((pass, shared));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(tasks(), 0);
}

#[test]
#[should_panic(expected = "no reactor running")]
fn waiting_outside_a_runtime_panics_at_once() {
    assert_pending!(pass!(waiter(&limit(0))).poll());
}

#[test]
fn a_limit_outlives_the_runtime_of_its_timer() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime")
    };
    let open_in = |shared: &Shared<Script>, time: Duration| {
        shared.update(|script| script.at = vec![Instant::now() + time]);
    };
    let soon = Duration::from_millis(40);
    let shared = limit(0);
    let first = runtime();
    let mut begun = waiter(&shared);
    first.block_on(poll_fn(|cx| {
        assert_pending!(poll(&mut begun, cx));
        Poll::Ready(())
    }));
    // The runtime that has the timer ends while others wait in another.
    let second = runtime();
    second.block_on(async {
        let mut waits = waiter(&shared);
        drop(begun);
        let ends = tokio::task::spawn_blocking(move || drop(first));
        let mut waits = tokio::spawn(async move { poll_fn(|cx| poll(&mut waits, cx)).await });
        tokio::task::yield_now().await;
        ends.await.expect("no panic");
        open_in(&shared, soon);
        let passed = (&mut waits).await.expect("no panic");
        passed.expect("it has a rank");
    });
}

/// Waker that records whether the limit is locked when it is woken or dropped.
struct Probe {
    shared: Arc<Shared<Script>>,
    locked: Arc<Mutex<Vec<bool>>>,
}

impl Probe {
    fn record(&self) {
        let locked = self.shared.state.try_lock().is_err();
        self.locked.lock().expect("no panic").push(locked);
    }
}

impl Wake for Probe {
    fn wake(self: Arc<Self>) {
        self.record();
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.record();
    }
}

#[tokio::test(start_paused = true)]
async fn wakers_are_woken_and_dropped_outside_the_lock() {
    let shared = limit(0);
    let locked = Arc::new(Mutex::new(Vec::new()));
    // Each poll has a waker of its own, which only the queue keeps.
    let poll = |waiter: &mut Waiter<Script>| {
        let waker = Waker::from(Arc::new(Probe {
            shared: Arc::clone(&shared),
            locked: Arc::clone(&locked),
        }));
        poll(waiter, &mut Context::from_waker(&waker))
    };
    let mut first = waiter(&shared);
    assert_pending!(poll(&mut first));
    assert_pending!(poll(&mut first), "the new waker replaces the old one");
    give_back(&shared);
    assert_ready_ok!(poll(&mut first));
    let mut second = waiter(&shared);
    assert_pending!(poll(&mut second));
    let mut cx = Context::from_waker(Waker::noop());
    assert_pending!(skip(&mut second, &mut cx));
    assert_pending!(poll(&mut second));
    drop(second);
    let locked = locked.lock().expect("no panic");
    assert!(
        locked.len() >= 6 && locked.iter().all(|locked| !locked),
        "{locked:?}"
    );
}

/// A runtime that is late is late for its timer as well, so events take no turn from a waiter.
#[tokio::test(start_paused = true)]
async fn a_late_runtime_takes_no_turn_from_its_waiters() {
    let shared = limit(0);
    let (mut first, mut second) = (pass!(waiter(&shared)), pass!(waiter(&shared)));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    give_back(&shared);
    // Nothing runs meanwhile.
    assert_pending!(task::spawn(tokio::time::advance(Duration::from_secs(1))).poll());
    shared.update(|_| {});
    assert!(first.is_woken() && !second.is_woken());
    assert_ready_ok!(first.poll());
}
