#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]

mod model;

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Context, Wake, Waker},
    time::Duration,
};

use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

use super::*;

/// Lets `free` pass; one more at each instant in `at`; the rest on return. Whoever comes to the
/// front passes whatever is free, once it is `urgent`.
struct Script {
    free: usize,
    at: Vec<Instant>,
    urgent: bool,
}

impl Admit for Script {
    type Grant = ();

    fn earliest(&mut self, now: Instant) -> Earliest {
        while self.at.first().is_some_and(|at| *at <= now) {
            self.at.remove(0);
            self.free += 1;
        }
        match (self.free, self.at.first()) {
            (0, None) => Earliest::OnReturn,
            (0, Some(at)) => Earliest::At(*at),
            _ => Earliest::Now,
        }
    }

    fn earliest_in_front(&mut self, now: Instant) -> Earliest {
        if self.urgent {
            Earliest::Now
        } else {
            self.earliest(now)
        }
    }

    fn admit(&mut self, _now: Instant) {
        self.free = self.free.saturating_sub(1);
    }

    fn admit_undated(&mut self) -> Option<()> {
        self.free.checked_sub(1).map(|free| self.free = free)
    }
}

fn gate(free: usize) -> Arc<Gate<Script>> {
    Arc::new(Gate::new(Script {
        free,
        at: Vec::new(),
        urgent: false,
    }))
}

fn waiter(gate: &Arc<Gate<Script>>) -> Waiter<Script> {
    Waiter::new(Arc::clone(gate), Line::Back, None)
}

fn put_back(gate: &Gate<Script>) {
    gate.update(|script| script.free += 1);
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
    let gate = gate(2);
    let mut waiter = waiter(&gate);
    let mut twice = task::spawn(poll_fn(|cx| waiter.poll_pass(cx)));
    assert_ready_ok!(twice.poll());
    assert_ready_ok!(twice.poll());
    assert_pending!(twice.poll());
}

#[tokio::test(start_paused = true)]
async fn waiters_pass_in_the_order_they_came() {
    let gate = gate(0);
    let mut first = pass!(waiter(&gate));
    let mut second = pass!(waiter(&gate));
    assert_pending!(first.poll());
    assert_pending!(second.poll());

    put_back(&gate);
    assert!(first.is_woken());
    assert!(!second.is_woken(), "one is woken at a time");
    assert_pending!(second.poll(), "a later waiter cannot overtake");
    let mut newcomer = pass!(waiter(&gate));
    assert_pending!(newcomer.poll(), "nor can one that has just come");

    assert_ready_ok!(first.poll());
    put_back(&gate);
    assert!(second.is_woken());
    assert_ready_ok!(second.poll());
    assert!(!newcomer.is_woken());
}

#[tokio::test(start_paused = true)]
async fn one_who_does_not_wait_passes_nobody_who_does() {
    let gate = gate(0);
    let mut first = pass!(waiter(&gate));
    assert_pending!(first.poll());
    put_back(&gate);
    assert_eq!(
        gate.try_pass(Line::Back),
        Err(None),
        "it is the first one's"
    );
    assert_ready_ok!(first.poll());
    put_back(&gate);
    assert_eq!(gate.try_pass(Line::Back), Ok(()));
    let soon = Duration::from_millis(40);
    gate.update(|script| script.at = vec![Instant::now() + soon]);
    assert_eq!(gate.try_pass(Line::Back), Err(Some(soon)));
}

#[tokio::test(start_paused = true)]
async fn one_who_is_first_in_line_goes_before_those_who_wait() {
    let gate = gate(0);
    let front = || pass!(Waiter::new(Arc::clone(&gate), Line::Front, None));
    let mut first = pass!(waiter(&gate));
    assert_pending!(first.poll());
    let mut urgent = front();
    assert_pending!(urgent.poll());

    put_back(&gate);
    assert!(urgent.is_woken());
    assert_pending!(first.poll());
    assert_ready_ok!(urgent.poll());
    put_back(&gate);
    assert!(first.is_woken(), "the turn is handed on");
    let mut newcomer = front();
    assert_ready_ok!(newcomer.poll());
    assert_pending!(first.poll());
    put_back(&gate);
    assert_eq!(
        gate.try_pass(Line::Front),
        Ok(()),
        "nor does it wait for one woken"
    );
    assert_pending!(first.poll());
    put_back(&gate);
    assert!(first.is_woken());
    assert_ready_ok!(first.poll());
}

#[tokio::test(start_paused = true)]
async fn one_first_in_line_that_leaves_hands_the_turn_on() {
    let gate = gate(0);
    let soon = Instant::now() + Duration::from_millis(40);
    let mut first = pass!(waiter(&gate));
    assert_pending!(first.poll());
    let mut urgent = pass!(Waiter::new(Arc::clone(&gate), Line::Front, None));
    assert_pending!(urgent.poll());
    gate.update(|script| script.at = vec![soon]);
    assert!(urgent.is_woken());
    assert_pending!(urgent.poll());
    drop(urgent);
    assert!(first.is_woken(), "it has to wait by its own timer now");
    assert_pending!(first.poll());
    advance(Duration::from_millis(41)).await;
    assert!(first.is_woken());
    assert_ready_ok!(first.poll());
}

#[tokio::test(start_paused = true)]
async fn what_one_first_in_line_waits_for_is_asked_for_it_alone() {
    let gate = gate(0);
    let urgent = |on| gate.update(|script| script.urgent = on);
    let front = || pass!(Waiter::new(Arc::clone(&gate), Line::Front, None));
    let mut first = pass!(waiter(&gate));
    assert_pending!(first.poll());
    urgent(true);
    assert!(!first.is_woken(), "it is not about those who wait behind");
    assert_ready_ok!(front().poll(), "at once");
    assert_eq!(gate.try_pass(Line::Front), Ok(()));
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
    put_back(&gate);
    assert!(first.is_woken());
    assert_ready_ok!(first.poll());
}

#[tokio::test(start_paused = true)]
async fn a_grant_wakes_the_next_while_there_is_room() {
    let gate = gate(0);
    let mut first = pass!(waiter(&gate));
    let mut second = pass!(waiter(&gate));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    gate.update(|script| script.free += 2);
    assert!(!second.is_woken());
    assert_ready_ok!(first.poll());
    assert!(second.is_woken());
    assert_ready_ok!(second.poll());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_front_waiter_wakes_the_next() {
    let gate = gate(0);
    let mut first = pass!(waiter(&gate));
    let mut second = pass!(waiter(&gate));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    put_back(&gate);
    // Woken, and gone before it looked.
    drop(first);
    assert!(second.is_woken());
    assert_ready_ok!(second.poll());
    assert_eq!(gate.read(|_, waiting| waiting), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_in_the_middle_is_passed_over() {
    let gate = gate(0);
    let mut first = pass!(waiter(&gate));
    let mut middle = pass!(waiter(&gate));
    let mut last = pass!(waiter(&gate));
    assert_pending!(first.poll());
    assert_pending!(middle.poll());
    assert_pending!(last.poll());
    drop(middle);
    gate.update(|script| script.free += 2);
    assert_ready_ok!(first.poll());
    assert_ready_ok!(last.poll());
}

#[tokio::test(start_paused = true)]
async fn the_front_waiter_keeps_its_own_time_and_then_the_next_does() {
    let gate = gate(0);
    let now = Instant::now();
    let (soon, later) = (Duration::from_millis(10), Duration::from_millis(30));
    gate.update(|script| script.at = vec![now + soon, now + later]);
    let mut first = pass!(waiter(&gate));
    let mut second = pass!(waiter(&gate));
    assert_pending!(first.poll());
    assert_pending!(second.poll());

    advance(soon).await;
    assert!(first.is_woken());
    assert_ready_ok!(first.poll());
    // It has an instant to wait for now, so it must look and set its timer.
    assert!(second.is_woken());
    assert_pending!(second.poll());
    advance(later - soon).await;
    assert!(second.is_woken());
    assert_ready_ok!(second.poll());
}

#[tokio::test(start_paused = true)]
async fn an_event_that_changes_nothing_for_the_front_wakes_nobody() {
    let gate = gate(0);
    let at = Instant::now() + Duration::from_secs(5);
    gate.update(|script| script.at = vec![at]);
    let mut first = pass!(waiter(&gate));
    assert_pending!(first.poll());
    gate.update(|script| script.at.push(at + Duration::from_secs(1)));
    assert!(!first.is_woken());
}

#[tokio::test(start_paused = true)]
async fn a_bounded_wait_ends_in_an_error_and_leaves_no_place_behind() {
    let gate = gate(0);
    let bound = Duration::from_millis(250);
    let mut bounded = pass!(Waiter::new(Arc::clone(&gate), Line::Back, Some(bound)));
    let mut patient = pass!(waiter(&gate));
    assert_pending!(bounded.poll());
    assert_pending!(patient.poll());

    advance(bound).await;
    let error = assert_ready_err!(bounded.poll());
    assert!(error.is_timeout());
    assert_eq!(error.waited(), Some(bound));
    assert_eq!(gate.read(|_, waiting| waiting), 1);
    put_back(&gate);
    assert_ready_ok!(patient.poll());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_bound_is_over_still_passes_if_there_is_room() {
    let gate = gate(0);
    let bound = Duration::from_millis(250);
    let mut bounded = pass!(Waiter::new(Arc::clone(&gate), Line::Back, Some(bound)));
    assert_pending!(bounded.poll());
    put_back(&gate);
    advance(bound).await;
    assert_ready_ok!(bounded.poll());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_timed_out_can_wait_again() {
    let gate = gate(0);
    let bound = Duration::from_millis(250);
    let mut waiter = Waiter::new(Arc::clone(&gate), Line::Back, Some(bound));
    let mut again = task::spawn(poll_fn(|cx| waiter.poll_pass(cx)));
    assert_pending!(again.poll());
    advance(bound).await;
    assert_ready_err!(again.poll());
    assert_pending!(again.poll());
    put_back(&gate);
    assert_ready_ok!(again.poll());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_under_random_cancels() {
    let gate = gate(3);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut tasks = Vec::new();
    let mut held = 0_usize;
    for _ in 0..20_000 {
        match rng.u32(0..4) {
            0 => tasks.push(pass!(waiter(&gate))),
            1 if !tasks.is_empty() => drop(tasks.swap_remove(rng.usize(..tasks.len()))),
            2 if held > 0 => {
                held -= 1;
                put_back(&gate);
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
    assert_eq!(gate.read(|_, waiting| waiting), 0);
    assert_eq!(gate.read(|script, _| script.free), 3 - held);
}

#[test]
fn a_waiter_can_be_made_outside_a_runtime() {
    let gate = gate(1);
    let mut pass = pass!(waiter(&gate));
    assert_ready!(pass.poll()).expect("there is room");
}

/// Looks when it is dropped whether the gate is locked.
struct Looks {
    gate: Arc<Gate<Script>>,
    dropped: Arc<Mutex<Vec<bool>>>,
}

impl Wake for Looks {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Looks {
    fn drop(&mut self) {
        let locked = self.gate.is_locked();
        self.dropped.lock().expect("no panic").push(locked);
    }
}

#[tokio::test(start_paused = true)]
async fn no_waker_is_dropped_under_the_lock() {
    let gate = gate(0);
    let dropped = Arc::new(Mutex::new(Vec::new()));
    // Each poll by a waker of its own, which is then the gate's alone.
    let poll = |waiter: &mut Waiter<Script>| {
        let waker = Waker::from(Arc::new(Looks {
            gate: Arc::clone(&gate),
            dropped: Arc::clone(&dropped),
        }));
        waiter.poll_pass(&mut Context::from_waker(&waker))
    };
    let mut first = waiter(&gate);
    assert_pending!(poll(&mut first));
    assert_pending!(poll(&mut first), "the new waker replaces the old one");
    put_back(&gate);
    assert_ready_ok!(poll(&mut first), "it leaves with its grant");
    let mut second = waiter(&gate);
    assert_pending!(poll(&mut second));
    drop(second);
    // The granted poll's own waker never was the gate's.
    assert_eq!(*dropped.lock().expect("no panic"), [false; 4]);
}
