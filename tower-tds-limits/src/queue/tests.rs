mod model;

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

use super::{readiness::Bound, *};
use crate::LimitError;

/// Lets `free` pass; one more at each instant in `at`; the rest on return. Whoever comes to the
/// front passes whatever is free, once it is `urgent`.
struct Script {
    free: usize,
    at: Vec<Instant>,
    urgent: bool,
    busy: bool,
}

impl Limit for Script {
    type Grant = ();

    fn opens(&mut self, line: Line, now: Instant) -> Opens {
        while self.at.first().is_some_and(|at| *at <= now) {
            self.at.remove(0);
            self.free += 1;
        }
        match (self.free, self.at.first()) {
            _ if self.urgent && line == Line::Front => Opens::Now,
            (0, None) => Opens::OnReturn,
            (0, Some(at)) => Opens::At(*at),
            _ => Opens::Now,
        }
    }

    fn admit(&mut self, _now: Instant) {
        self.free = self.free.saturating_sub(1);
    }

    fn withdraw(&mut self, (): ()) {
        self.free += 1;
    }

    fn is_idle(&self) -> bool {
        !self.busy
    }

    fn cause(&mut self, _line: Line, _now: Instant) -> WaitCause {
        WaitCause::InFlight
    }
}

fn queue(free: usize) -> Arc<Queue<Script>> {
    let script = Script {
        free,
        at: Vec::new(),
        urgent: false,
        busy: false,
    };
    Arc::new(Queue::new(script))
}

fn waiter(queue: &Arc<Queue<Script>>) -> Bounded {
    Bounded::new(Arc::clone(queue), Line::Back, None)
}

fn put_back(queue: &Queue<Script>) {
    queue.update(|script| script.free += 1);
}

/// A waiter that waits for so long at the most.
struct Bounded(Waiter<Script>, Bound);

impl Bounded {
    fn new(queue: Arc<Queue<Script>>, line: Line, longest: Option<Duration>) -> Self {
        Self(Waiter::new(queue, line), Bound::new(longest))
    }

    fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LimitError>> {
        let passed = self.0.poll_pass(&mut self.1, cx);
        if passed.is_ready() {
            self.1.end();
        }
        passed
    }
}

/// A task that polls one waiter, which it owns.
macro_rules! pass {
    ($waiter:expr) => {{
        let mut waiter = $waiter;
        task::spawn(poll_fn(move |cx| waiter.poll_pass(cx)))
    }};
}

#[tokio::test(start_paused = true)]
async fn passes_at_once_while_there_is_room() {
    let queue = queue(2);
    let mut waiter = waiter(&queue);
    let mut twice = task::spawn(poll_fn(|cx| waiter.poll_pass(cx)));
    assert_ready_ok!(twice.poll());
    assert_ready_ok!(twice.poll());
    assert_pending!(twice.poll());
}

#[tokio::test(start_paused = true)]
async fn waiters_pass_in_the_order_they_came() {
    let queue = queue(0);
    let mut first = pass!(waiter(&queue));
    let mut second = pass!(waiter(&queue));
    assert_pending!(first.poll());
    assert_pending!(second.poll());

    put_back(&queue);
    assert!(first.is_woken());
    assert!(!second.is_woken(), "one is woken at a time");
    assert_pending!(second.poll(), "a later waiter cannot overtake");
    let mut newcomer = pass!(waiter(&queue));
    assert_pending!(newcomer.poll(), "nor can one that has just come");

    assert_ready_ok!(first.poll());
    put_back(&queue);
    assert!(second.is_woken());
    assert_ready_ok!(second.poll());
    assert!(!newcomer.is_woken());
}

/// Some have missed their turns, and are gone.
#[tokio::test(start_paused = true)]
async fn who_looks_in_time_is_waited_for_again_whatever_others_have_missed() {
    let queue = queue(0);
    let kept = kept(&queue, 4);
    put_back(&queue);
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(kept);
    let mut looks = pass!(waiter(&queue));
    assert_ready_ok!(looks.poll());
    assert_pending!(looks.poll());
    put_back(&queue);
    assert_ready_ok!(looks.poll());

    let mut first = pass!(waiter(&queue));
    let mut second = pass!(waiter(&queue));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    put_back(&queue);
    assert!(first.is_woken());
    assert!(!second.is_woken(), "one is woken at a time");
    let mut newcomer = pass!(waiter(&queue));
    assert_pending!(newcomer.poll(), "one that has just come cannot overtake");
    assert_ready_ok!(first.poll());
}

#[tokio::test(start_paused = true)]
async fn one_who_is_first_in_line_goes_before_those_who_wait() {
    let queue = queue(0);
    let front = || pass!(Bounded::new(Arc::clone(&queue), Line::Front, None));
    let mut first = pass!(waiter(&queue));
    assert_pending!(first.poll());
    let mut urgent = front();
    assert_pending!(urgent.poll());

    put_back(&queue);
    assert!(urgent.is_woken());
    assert_pending!(first.poll());
    assert_ready_ok!(urgent.poll());
    put_back(&queue);
    assert!(first.is_woken(), "the turn is handed on");
    let mut newcomer = front();
    assert_ready_ok!(newcomer.poll());
    assert_pending!(first.poll());
    put_back(&queue);
    let mut urgent = front();
    assert_ready_ok!(urgent.poll(), "nor does it wait for one woken");
    assert_pending!(first.poll());
    put_back(&queue);
    assert!(first.is_woken());
    assert_ready_ok!(first.poll());
}

#[tokio::test(start_paused = true)]
async fn one_first_in_line_that_leaves_hands_the_turn_on() {
    let queue = queue(0);
    let soon = Instant::now() + Duration::from_millis(40);
    let mut first = pass!(waiter(&queue));
    assert_pending!(first.poll());
    let mut urgent = pass!(Bounded::new(Arc::clone(&queue), Line::Front, None));
    assert_pending!(urgent.poll());
    queue.update(|script| script.at = vec![soon]);
    assert!(!urgent.is_woken() && !first.is_woken(), "it is not time");
    drop(urgent);
    advance(Duration::from_millis(41)).await;
    assert!(first.is_woken());
    assert_ready_ok!(first.poll());
}

#[tokio::test(start_paused = true)]
async fn what_one_first_in_line_waits_for_is_asked_for_it_alone() {
    let queue = queue(0);
    let urgent = |on| queue.update(|script| script.urgent = on);
    let front = || pass!(Bounded::new(Arc::clone(&queue), Line::Front, None));
    let mut first = pass!(waiter(&queue));
    assert_pending!(first.poll());
    urgent(true);
    assert!(!first.is_woken(), "it is not about those who wait behind");
    assert_ready_ok!(front().poll(), "at once");
    assert_ready_ok!(front().poll());
    urgent(false);
    let mut waits = front();
    let mut leaves = front();
    assert_pending!(waits.poll());
    assert_pending!(leaves.poll());
    urgent(true);
    assert!(leaves.is_woken() && !waits.is_woken());
    drop(leaves);
    assert!(waits.is_woken(), "the turn is handed on");
    assert_ready_ok!(waits.poll());
    assert!(!first.is_woken(), "to those it is about");
    put_back(&queue);
    assert!(first.is_woken());
    assert_ready_ok!(first.poll());
}

#[tokio::test(start_paused = true)]
async fn a_grant_wakes_the_next_while_there_is_room() {
    let queue = queue(0);
    let mut first = pass!(waiter(&queue));
    let mut second = pass!(waiter(&queue));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    queue.update(|script| script.free += 2);
    assert!(!second.is_woken());
    assert_ready_ok!(first.poll());
    assert!(second.is_woken());
    assert_ready_ok!(second.poll());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_front_waiter_wakes_the_next() {
    let queue = queue(0);
    let mut first = pass!(waiter(&queue));
    let mut second = pass!(waiter(&queue));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    put_back(&queue);
    // Woken, and gone before it looked.
    drop(first);
    assert!(second.is_woken());
    assert_ready_ok!(second.poll());
    assert_eq!(queue.read_all(|_, waiting, _| waiting), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_in_the_middle_is_passed_over() {
    let queue = queue(0);
    let mut first = pass!(waiter(&queue));
    let mut middle = pass!(waiter(&queue));
    let mut last = pass!(waiter(&queue));
    assert_pending!(first.poll());
    assert_pending!(middle.poll());
    assert_pending!(last.poll());
    drop(middle);
    queue.update(|script| script.free += 2);
    assert_ready_ok!(first.poll());
    assert_ready_ok!(last.poll());
}

#[tokio::test(start_paused = true)]
async fn the_time_is_kept_for_whoever_is_next() {
    let queue = queue(0);
    let now = Instant::now();
    let (soon, later) = (Duration::from_millis(10), Duration::from_millis(30));
    queue.update(|script| script.at = vec![now + soon, now + later]);
    let mut first = pass!(waiter(&queue));
    let mut second = pass!(waiter(&queue));
    assert_pending!(first.poll());
    assert_pending!(second.poll());

    advance(soon).await;
    assert!(first.is_woken());
    assert_ready_ok!(first.poll());
    assert!(!second.is_woken(), "it is not time");
    tokio::time::sleep(later - soon + Duration::from_millis(1)).await;
    assert!(second.is_woken());
    assert_ready_ok!(second.poll());
}

#[tokio::test(start_paused = true)]
async fn an_event_that_changes_nothing_for_the_front_wakes_nobody() {
    let queue = queue(0);
    let at = Instant::now() + Duration::from_secs(5);
    queue.update(|script| script.at = vec![at]);
    let mut first = pass!(waiter(&queue));
    assert_pending!(first.poll());
    queue.update(|script| script.at.push(at + Duration::from_secs(1)));
    assert!(!first.is_woken());
}

#[tokio::test(start_paused = true)]
async fn a_bounded_wait_ends_in_an_error_and_leaves_no_place_behind() {
    let queue = queue(0);
    let bound = Duration::from_millis(250);
    let mut bounded = pass!(Bounded::new(Arc::clone(&queue), Line::Back, Some(bound)));
    let mut patient = pass!(waiter(&queue));
    assert_pending!(bounded.poll());
    assert_pending!(patient.poll());

    advance(bound).await;
    let error = assert_ready_err!(bounded.poll());
    assert_eq!(error, LimitError::timed_out(WaitCause::InFlight, bound));
    assert_eq!(queue.read_all(|_, waiting, _| waiting), 1);
    put_back(&queue);
    assert_ready_ok!(patient.poll());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_bound_is_over_still_passes_if_there_is_room() {
    let queue = queue(0);
    let bound = Duration::from_millis(250);
    let mut bounded = pass!(Bounded::new(Arc::clone(&queue), Line::Back, Some(bound)));
    assert_pending!(bounded.poll());
    put_back(&queue);
    advance(bound).await;
    assert_ready_ok!(bounded.poll());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_timed_out_can_wait_again() {
    let queue = queue(0);
    let bound = Duration::from_millis(250);
    let mut waiter = Bounded::new(Arc::clone(&queue), Line::Back, Some(bound));
    let mut again = task::spawn(poll_fn(|cx| waiter.poll_pass(cx)));
    assert_pending!(again.poll());
    advance(bound).await;
    assert_ready_err!(again.poll());
    assert_pending!(again.poll());
    put_back(&queue);
    assert_ready_ok!(again.poll());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_under_random_cancels() {
    let queue = queue(3);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut tasks = Vec::new();
    let mut held = 0_usize;
    for _ in 0..20_000 {
        match rng.u32(0..4) {
            0 => tasks.push(pass!(waiter(&queue))),
            1 if !tasks.is_empty() => drop(tasks.swap_remove(rng.usize(..tasks.len()))),
            2 if held > 0 => {
                held -= 1;
                put_back(&queue);
            }
            _ if !tasks.is_empty() => {
                let at = rng.usize(..tasks.len());
                if tasks[at].poll().is_ready() {
                    held += 1;
                    drop(tasks.swap_remove(at));
                }
            }
            _ => {}
        }
    }
    drop(tasks);
    assert_eq!(queue.read_all(|_, waiting, _| waiting), 0);
    assert_eq!(queue.read(|script| script.free), 3 - held);
}

#[test]
fn a_waiter_can_be_made_outside_a_runtime() {
    let queue = queue(1);
    let mut pass = pass!(waiter(&queue));
    assert_ready!(pass.poll()).expect("there is room");
}

/// Looks when it is dropped whether the queue is locked.
struct Looks {
    queue: Arc<Queue<Script>>,
    dropped: Arc<Mutex<Vec<bool>>>,
}

impl Wake for Looks {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Looks {
    fn drop(&mut self) {
        let locked = self.queue.is_locked();
        self.dropped.lock().expect("no panic").push(locked);
    }
}

#[tokio::test(start_paused = true)]
async fn no_waker_is_dropped_under_the_lock() {
    let queue = queue(0);
    let dropped = Arc::new(Mutex::new(Vec::new()));
    // Each poll by a waker of its own, which is then the queue's alone.
    let poll = |waiter: &mut Bounded| {
        let waker = Waker::from(Arc::new(Looks {
            queue: Arc::clone(&queue),
            dropped: Arc::clone(&dropped),
        }));
        waiter.poll_pass(&mut Context::from_waker(&waker))
    };
    let mut first = waiter(&queue);
    assert_pending!(poll(&mut first));
    assert_pending!(poll(&mut first), "the new waker replaces the old one");
    put_back(&queue);
    assert_ready_ok!(poll(&mut first), "it leaves with its grant");
    let mut second = waiter(&queue);
    assert_pending!(poll(&mut second));
    drop(second);
    // The granted poll's own waker never was the queue's.
    assert_eq!(*dropped.lock().expect("no panic"), [false; 4]);
}

/// Polls each once, and never again.
fn kept(queue: &Arc<Queue<Script>>, count: usize) -> Vec<Bounded> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut kept: Vec<_> = (0..count).map(|_| waiter(queue)).collect();
    for waiter in &mut kept {
        assert_pending!(waiter.poll_pass(&mut cx));
    }
    kept
}

#[tokio::test(start_paused = true)]
async fn those_who_do_not_look_when_it_is_their_turn_are_passed_over() {
    let queue = queue(0);
    let mut kept = kept(&queue, 10);
    let mut waits = pass!(waiter(&queue));
    assert_pending!(waits.poll());
    put_back(&queue);
    // Ten are called, five milliseconds apart.
    tokio::time::sleep(Duration::from_millis(51)).await;
    assert!(waits.is_woken());
    assert_ready_ok!(waits.poll());
    // Who comes after them does not wait for them either.
    put_back(&queue);
    let mut newcomer = pass!(waiter(&queue));
    assert_ready_ok!(newcomer.poll());
    // And they pass when they look.
    put_back(&queue);
    let mut cx = Context::from_waker(Waker::noop());
    assert_ready_ok!(kept[3].poll_pass(&mut cx));
    assert_pending!(kept[4].poll_pass(&mut cx));
    drop(kept);
    assert_eq!(queue.read_all(|_, waiting, _| waiting), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_passed_over_and_looks_too_late_is_the_first_again_and_not_waited_for() {
    let queue = queue(0);
    let mut slow = pass!(waiter(&queue));
    let mut second = pass!(waiter(&queue));
    let mut third = pass!(waiter(&queue));
    assert_pending!(slow.poll());
    assert_pending!(second.poll());
    assert_pending!(third.poll());
    put_back(&queue);
    tokio::time::sleep(Duration::from_millis(6)).await;
    assert_ready_ok!(second.poll());
    assert_pending!(slow.poll());
    put_back(&queue);
    assert!(slow.is_woken() && third.is_woken());
    assert_ready_ok!(slow.poll());
    assert_pending!(third.poll());
}

#[test]
#[should_panic(expected = "no reactor running")]
fn whoever_has_to_wait_outside_of_a_runtime_hears_it_at_once() {
    let queue = queue(1);
    let mut first = pass!(waiter(&queue));
    assert_ready_ok!(first.poll());
    let mut second = pass!(waiter(&queue));
    let _waits = second.poll();
}

#[test]
#[should_panic(expected = "timers are disabled")]
fn so_does_whoever_has_to_wait_in_a_runtime_without_timers() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(async {
        let queue = queue(0);
        let mut waits = pass!(waiter(&queue));
        let _waits = waits.poll();
    });
}

#[test]
fn a_queue_lives_over_two_runtimes() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime")
    };
    let wait = async |queue: &Arc<Queue<Script>>, bound: Option<Duration>| {
        let mut waiter = Bounded::new(Arc::clone(queue), Line::Back, bound);
        poll_fn(|cx| waiter.poll_pass(cx)).await
    };
    let open_in = |queue: &Queue<Script>, millis| {
        queue.update(|script| {
            script
                .at
                .push(Instant::now() + Duration::from_millis(millis))
        });
    };
    let queue = queue(0);
    let first = runtime();
    first.block_on(async {
        open_in(&queue, 40);
        wait(&queue, None).await.expect("its time has come");
    });
    // The first one stands still and has the alarm.
    let second = runtime();
    second.block_on(async {
        open_in(&queue, 40);
        wait(&queue, None).await.expect("in the second, too");
    });
    // One waits in the second that has begun in the first, which has ended.
    let mut begun = Bounded::new(Arc::clone(&queue), Line::Back, Some(Duration::from_secs(9)));
    first.block_on(poll_fn(|cx| {
        assert_pending!(begun.poll_pass(cx));
        Poll::Ready(())
    }));
    drop(first);
    second.block_on(async {
        open_in(&queue, 40);
        let passed = poll_fn(|cx| begun.poll_pass(cx)).await;
        passed.expect("nothing is kept of the first");
    });
    // Whoever waits in the second when the first one ends has an alarm all the same.
    let third = runtime();
    third.block_on(async {
        queue.update(|script| script.at.clear());
        let other = Arc::clone(&queue);
        let waits = tokio::spawn(async move { wait(&other, None).await });
        tokio::task::yield_now().await;
        drop(tokio::task::spawn_blocking(move || drop(second)).await);
        open_in(&queue, 40);
        waits.await.expect("no panic").expect("its time has come");
    });
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_until_nothing_is_under_way_is_told() {
    let queue = queue(0);
    queue.update(|script| script.busy = true);
    let other = Arc::clone(&queue);
    let mut idle = task::spawn(async move { other.idle().await });
    assert_pending!(idle.poll());
    put_back(&queue);
    assert!(!idle.is_woken());
    queue.update(|script| script.busy = false);
    assert!(idle.is_woken());
    assert_ready!(idle.poll());
}

#[tokio::test(start_paused = true)]
async fn an_idle_wait_that_is_dropped_leaves_no_waker() {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let queue = queue(0);
    queue.update(|script| script.busy = true);
    let waits = Arc::new(Task);
    let waker = Waker::from(Arc::clone(&waits));
    let mut idle = Box::pin(queue.idle());
    assert!(
        idle.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop((idle, waker));
    assert_eq!(Arc::strong_count(&waits), 1);
}

async fn passes(queue: &Arc<Queue<Script>>) -> Result<(), LimitError> {
    let mut waiter = waiter(queue);
    poll_fn(|cx| waiter.poll_pass(cx)).await
}

#[tokio::test(start_paused = true)]
async fn a_thousand_who_do_not_look_cost_little_more_than_one() {
    let queue = queue(0);
    let mut sleepers = Vec::new();
    for _ in 0..1_000 {
        let mut sleeper = pass!(waiter(&queue));
        assert_pending!(sleeper.poll());
        sleepers.push(sleeper);
    }
    let begin = Instant::now();
    let other = Arc::clone(&queue);
    let looks = tokio::spawn(async move { passes(&other).await });
    tokio::task::yield_now().await;
    put_back(&queue);
    looks.await.expect("no panic").expect("a place");
    let first = begin.elapsed();
    assert!(first <= Duration::from_millis(150), "{first:?}");
    // And the next time nothing.
    let begin = Instant::now();
    for sleeper in &mut sleepers {
        assert_pending!(sleeper.poll());
    }
    let other = Arc::clone(&queue);
    let looks = tokio::spawn(async move { passes(&other).await });
    tokio::task::yield_now().await;
    put_back(&queue);
    looks.await.expect("no panic").expect("a place");
    let second = begin.elapsed();
    assert!(second <= Duration::from_millis(150), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn those_who_were_passed_over_pass_in_the_order_they_came() {
    let queue = queue(0);
    let mut late: Vec<_> = (0..10).map(|_| pass!(waiter(&queue))).collect();
    for late in &mut late {
        assert_pending!(late.poll());
    }
    put_back(&queue);
    advance(Duration::from_millis(500)).await;
    tokio::task::yield_now().await;
    queue.update(|script| script.free = 0);
    // They look at last, and cannot pass.
    for late in &mut late {
        assert_pending!(late.poll());
    }
    for passed in 0..10 {
        put_back(&queue);
        assert_ready_ok!(late[passed].poll());
        for later in &mut late[passed + 1..] {
            assert_pending!(later.poll());
        }
    }
}
