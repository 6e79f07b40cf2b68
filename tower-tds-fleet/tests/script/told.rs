//! What is told twice, or of leases that are no more.

use std::time::Duration;

use tokio::{sync::oneshot::error::TryRecvError, time::Instant};

use crate::{
    member::{Ask, Granted, Member, Next, Reply, Term},
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
    let Next::Ask(Ask {
        want: 0,
        share: 0,
        events,
        kept,
    }) = member.next(later)
    else {
        panic!("it is to be renewed");
    };
    assert_eq!(kept, [7]);
    let ask = Ask {
        want: 0,
        share: 0,
        events,
        kept,
    };
    member.answered(&ask, reply(&[], &[7]), later, later);
    assert_eq!(member.over_at(), ends);
}
