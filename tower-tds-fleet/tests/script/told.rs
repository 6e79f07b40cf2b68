//! Words that are told twice, or of leases that are no more.

use std::time::Duration;

use tokio::{sync::oneshot::error::TryRecvError, time::Instant};

use crate::{
    member::{Granted, Member, Next, Reply, Term},
    store::{DEFAULT, Store, Told},
};

const TERM: Term = Term {
    lease: Duration::from_secs(20),
    lost: Duration::from_secs(10),
};

/// A member that has asked for one lease and got it.
fn member(now: Instant) -> (Member<()>, Granted) {
    let mut member = Member::new(TERM, None, now);
    member.wait((), false, false);
    let Next::Ask(ask) = member.next(now) else {
        panic!("somebody waits");
    };
    let granted = member.answered(&ask, reply(&[7], &[]), now, now).remove(0);
    member.next_waiting();
    member.used(granted.id, now);
    (member, granted)
}

fn reply(granted: &[i64], unknown: &[i64]) -> Reply {
    Reply {
        granted: granted.to_vec(),
        wait: None,
        paused: Duration::ZERO,
        agreed: false,
        server: 1,
        unknown: unknown.to_vec(),
    }
}

#[test]
fn a_refusal_that_is_told_twice_counts_once() {
    let store = Store::new(DEFAULT);
    let reply = store.ask("1", 2, &[]).expect("the same terms");
    for id in reply.granted {
        for _ in 0..2 {
            let told = store.ask("1", 0, &[Told::Proven(id, "r", 0)]);
            // Three refusals are a rung.
            assert_eq!(told.expect("the same terms").rung, 0);
        }
    }
}

#[test]
fn a_lease_that_is_over_is_not_renewed() {
    let now = Instant::now();
    let (mut member, mut granted) = member(now);
    // The process was stopped for so long.
    let next = member.next(now + TERM.lease);
    assert!(matches!(next, Next::Wait(Some(_))), "{next:?}");
    assert_eq!(granted.over.try_recv(), Err(TryRecvError::Closed));
}

#[test]
fn a_lease_that_the_store_does_not_know_ends_when_it_would_have() {
    let now = Instant::now();
    let (mut member, _granted) = member(now);
    let ends = member.over_at();
    let later = now + TERM.lease / 4;
    let Next::Ask(ask) = member.next(later) else {
        panic!("it is to be renewed");
    };
    assert_eq!((ask.want, ask.kept.as_slice()), (0, [7].as_slice()));
    member.answered(&ask, reply(&[], &[7]), later, later);
    assert_eq!(member.over_at(), ends);
}

#[test]
fn what_was_granted_in_an_answer_that_was_lost_goes_back_with_the_next_question() {
    let store = Store::new("50 1002000 20000 20040 0 -1 0 0");
    let asks = |want, numbers| {
        let reply = store.ask_as("1", want, 0, numbers, &[]);
        reply.expect("the same terms").granted.len()
    };
    assert_eq!(asks(20, [1, 0, 0]), 20);
    // It has never heard of these, and of those before it has.
    assert_eq!(asks(10, [2, 1, 1]), 10);
    assert_eq!(asks(30, [3, 1, 1]), 30);
    assert_eq!(asks(60, [4, 1, 1]), 30);
    // A question that comes late takes back nothing that was asked for after it.
    assert_eq!(asks(0, [3, 1, 1]), 0);
    assert_eq!(asks(60, [5, 4, 1]), 0);
    // Another member's are its own.
    let other = store.ask_as("2", 60, 0, [9, 1, 1], &[]);
    assert_eq!(other.expect("the same terms").granted.len(), 0);
}
