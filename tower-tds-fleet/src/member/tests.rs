use tokio::{sync::oneshot::error::TryRecvError, time::advance};

use super::*;
use crate::clock::now;

const LEASE: Duration = Duration::from_secs(20);

fn member() -> Member<u32> {
    with_share(None)
}

/// One that the store has just heard of.
fn heard_of() -> Member<u32> {
    let mut member = member();
    let ask = asks(&mut member);
    assert_eq!((ask.want, ask.share), (0, 0));
    member.answered(&ask, granted(&[]), now(), now());
    assert_eq!(waits(&mut member), Some(IDLE));
    member
}

fn with_share(share: Option<Share>) -> Member<u32> {
    let term = Term {
        lease: LEASE,
        lost: LEASE / 2,
    };
    Member::new(term, share, now())
}

fn asks(member: &mut Member<u32>) -> Ask {
    match member.next(now()) {
        Next::Ask(ask) => ask,
        Next::Wait(at) => panic!("it waits until {at:?}"),
    }
}

fn waits(member: &mut Member<u32>) -> Option<Duration> {
    match member.next(now()) {
        Next::Wait(at) => at.map(|at| at - now()),
        Next::Ask(ask) => panic!("{ask:?}"),
    }
}

fn granted(ids: &[Id]) -> Reply {
    Reply {
        granted: ids.to_vec(),
        wait: Some(Duration::from_millis(30)),
        paused: Duration::ZERO,
        agreed: true,
        server: 1,
        unknown: Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn one_question_has_all_that_is_wanted_and_told() {
    let mut member = heard_of();
    for waiter in 1..=3 {
        member.wait(waiter, waiter == 3, false);
    }
    let ask = asks(&mut member);
    assert_eq!((ask.want, ask.events.len(), ask.kept.len()), (3, 0, 0));
    let sent = now();
    let leases = member.answered(&ask, granted(&[7, 8]), sent, sent);
    assert_eq!(
        leases.iter().map(|lease| lease.id).collect::<Vec<_>>(),
        [7, 8]
    );
    assert_eq!(
        [member.next_waiting(), member.next_waiting()],
        [Some(3), Some(1)]
    );
    // As the store says; and then with what there is to tell.
    assert_eq!(waits(&mut member), Some(Duration::from_millis(30)));
    member.ended(Event::Proven(7, Heard::Accepted), now());
    let ask = asks(&mut member);
    assert_eq!(
        (ask.want, ask.events.as_slice()),
        (1, [Event::Proven(7, Heard::Accepted)].as_slice())
    );
    assert_eq!(member.held(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_any_more_leaves_the_queue() {
    let mut member = heard_of();
    member.wait(1, false, false);
    let ask = asks(&mut member);
    member.answered(&ask, granted(&[]), now(), now());
    assert_eq!(member.take_waiting(|waiter| *waiter == 1), [1]);
    let ask = asks(&mut member);
    assert_eq!(ask.want, 0);
    member.answered(&ask, granted(&[]), now(), now());
    assert_eq!(waits(&mut member), Some(IDLE));
}

#[tokio::test(start_paused = true)]
async fn who_is_not_told_asks_after_a_second_and_who_is_told_then() {
    let mut member = member();
    member.wait(1, false, false);
    let ask = asks(&mut member);
    let reply = Reply {
        wait: None,
        ..granted(&[])
    };
    member.answered(&ask, reply, now(), now());
    assert_eq!(waits(&mut member), Some(Duration::from_secs(1)));
    member.told(now() + Duration::from_millis(5));
    assert_eq!(waits(&mut member), Some(Duration::from_millis(5)));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_in_time_and_is_over_when_that_fails_for_long() {
    let mut member = member();
    member.wait(1, false, false);
    let ask = asks(&mut member);
    let sent = now();
    let mut lease = member.answered(&ask, granted(&[7]), sent, sent).remove(0);
    assert_eq!(lease.until, sent + LEASE / 2);
    member.next_waiting();
    // Whether anybody uses it is seen then.
    assert_eq!(waits(&mut member), Some(LEASE / 8));
    assert_eq!(member.used(7, now()), Some(false));
    assert_eq!(waits(&mut member), Some(LEASE / 8));
    for _ in 0..10 {
        advance(LEASE / 8).await;
        let ask = asks(&mut member);
        assert_eq!((ask.want, ask.kept.as_slice()), (0, [7].as_slice()));
        member.answered(&ask, granted(&[]), now(), now());
    }
    assert_eq!(member.over_at(), Some(now() + LEASE / 2));
    // Nobody answers.
    advance(LEASE / 8).await;
    let ask = asks(&mut member);
    member.unanswered(ask);
    advance(LEASE / 2 - LEASE / 8 - Duration::from_millis(1)).await;
    member.expire(now());
    assert!(
        lease
            .over
            .try_recv()
            .is_err_and(|error| error == TryRecvError::Empty)
    );
    advance(Duration::from_millis(1)).await;
    member.expire(now());
    assert!(
        lease
            .over
            .try_recv()
            .is_err_and(|error| error == TryRecvError::Closed)
    );
    assert_eq!(member.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_store_does_not_know_is_not_asked_for_again() {
    let mut member = member();
    member.wait(1, false, false);
    let ask = asks(&mut member);
    member.answered(&ask, granted(&[7]), now(), now());
    member.next_waiting();
    assert_eq!(member.used(7, now()), Some(false));
    advance(LEASE / 8).await;
    let ask = asks(&mut member);
    let reply = Reply {
        unknown: vec![7],
        ..granted(&[])
    };
    member.answered(&ask, reply, now(), now());
    assert_eq!(waits(&mut member), Some(IDLE));
    assert_eq!(member.held(), 1, "it may be used until it is over");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_has_heard_is_told_again_in_order() {
    let mut member = member();
    member.ended(Event::Unsent(1), now());
    let ask = asks(&mut member);
    member.ended(Event::Unsent(2), now());
    member.unanswered(ask);
    assert_eq!(
        asks(&mut member).events,
        [Event::Unsent(1), Event::Unsent(2)]
    );
}

const RECOVERY: Duration = Duration::from_secs(31);
const HOLD: Duration = Duration::from_millis(1_002);

/// A member with a share of twelve that was heard of, and has lost the store.
fn alone() -> Member<u32> {
    let share = Share::new(12.try_into().expect("not 0"), HOLD, RECOVERY);
    let mut member = with_share(Some(share));
    member.is_there(true);
    let ask = asks(&mut member);
    assert_eq!(
        (ask.want, ask.share),
        (0, 12),
        "it says so before anybody waits"
    );
    member.answered(&ask, granted(&[]), now(), now());
    assert_eq!(waits(&mut member), Some(LEASE / 8), "it is heard of");
    member.is_there(false);
    member
}

#[tokio::test(start_paused = true)]
async fn a_share_begins_when_the_store_withholds_it_and_goes_one_at_a_time() {
    let mut member = alone();
    for waiter in 0..10 {
        member.wait(waiter, false, false);
    }
    assert_eq!(member.alone_at(now()), Some(now() + RECOVERY));
    advance(RECOVERY - Duration::from_millis(1)).await;
    assert!(member.grant_alone(now()).is_none());
    advance(Duration::from_millis(1)).await;
    for _ in 0..5 {
        let lease = member.grant_alone(now()).expect("it is its turn");
        member.next_waiting();
        assert_eq!(member.used(lease.id, now()), Some(false));
        assert_eq!(
            member.alone_at(now()),
            Some(now() + LEASE / 2),
            "one at a time"
        );
        advance(Duration::from_millis(80)).await;
        member.ended(Event::Proven(lease.id, Heard::Accepted), now());
        // A tenth of the interval: of twelve in it, two are the counter's.
        assert_eq!(member.alone_at(now()), Some(now() + HOLD / 10));
        advance(HOLD / 10).await;
    }
    let lease = member.grant_alone(now()).expect("it is its turn");
    member.ended(Event::Within(lease.id, LEASE / 2), now());
    assert_eq!(member.alone_at(now()), Some(now() + LEASE / 2 + HOLD / 10));
    advance(LEASE / 2 + HOLD / 10).await;
    let lease = member.grant_alone(now()).expect("it is its turn");
    member.ended(Event::Proven(lease.id, Heard::Refused), now());
    assert_eq!(member.alone_at(now()), Some(now() + HOLD * 2));
    // And it is over before the store gives it to others.
    advance(Duration::from_secs(600)).await;
    assert_eq!(member.alone_at(now()), None);
}

#[tokio::test(start_paused = true)]
async fn back_at_the_store_it_asks_when_what_it_did_without_is_over() {
    let mut member = alone();
    member.wait(1, false, false);
    advance(RECOVERY).await;
    let lease = member.grant_alone(now()).expect("it is its turn");
    assert_eq!(member.used(lease.id, now()), Some(false));
    member.is_there(true);
    assert_eq!(
        waits(&mut member),
        Some(LEASE / 2),
        "its answer is not there"
    );
    assert_eq!(member.alone_at(now()), None);
    member.ended(Event::Proven(lease.id, Heard::Accepted), now());
    assert_eq!(waits(&mut member), Some(HOLD * 2));
    advance(HOLD * 2).await;
    let ask = asks(&mut member);
    assert_eq!((ask.want, ask.share, ask.events.len()), (1, 12, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_share_that_hangs_is_ended_and_the_next_one_follows() {
    let mut member = alone();
    member.wait(1, false, false);
    advance(RECOVERY).await;
    let mut lease = member.grant_alone(now()).expect("it is its turn");
    member.next_waiting();
    assert_eq!(member.used(lease.id, now()), Some(false));
    member.wait(2, false, false);
    advance(LEASE / 2).await;
    assert_eq!(member.over_at(), Some(now()));
    member.expire(now());
    assert_eq!(lease.over.try_recv(), Err(TryRecvError::Closed));
    // It may be counted for so long.
    let next = LEASE / 2 + HOLD / 10;
    assert_eq!(member.alone_at(now()), Some(now() + next));
    // What its permit says then is nothing new.
    member.ended(Event::Within(lease.id, LEASE), now());
    assert_eq!(member.alone_at(now()), Some(now() + next));
    assert_eq!(member.used(lease.id, now()), None);
    advance(next).await;
    assert!(member.grant_alone(now()).is_some());
}

#[tokio::test(start_paused = true)]
async fn one_that_was_never_heard_of_stays_closed() {
    let share = Share::new(12.try_into().expect("not 0"), HOLD, RECOVERY);
    let mut member = with_share(Some(share));
    member.wait(1, false, false);
    advance(RECOVERY * 2).await;
    assert_eq!(member.alone_at(now()), None);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_one_answer_only_asks_at_once() {
    let mut member = heard_of();
    member.wait(1, false, false);
    let ask = asks(&mut member);
    member.answered(&ask, granted(&[]), now(), now());
    assert_eq!(waits(&mut member), Some(Duration::from_millis(30)));
    member.wait(2, false, true);
    assert_eq!(asks(&mut member).want, 2);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_limits_whose_lost_requests_count_for_long_is_renewed_in_time_too() {
    let term = Term {
        lease: Duration::from_secs(100),
        lost: Duration::from_secs(90),
    };
    let mut member = Member::new(term, None, now());
    member.wait(1, false, false);
    let ask = asks(&mut member);
    let lease = member.answered(&ask, granted(&[7]), now(), now()).remove(0);
    member.next_waiting();
    assert_eq!(member.used(7, now()), Some(false));
    let renewed = waits(&mut member).expect("it is kept");
    assert!(now() + renewed * 3 < lease.until, "{renewed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_uses_is_not_kept_and_one_that_is_used_late_is() {
    let mut member = heard_of();
    member.wait(1, false, false);
    let ask = asks(&mut member);
    member.answered(&ask, granted(&[7]), now(), now());
    member.next_waiting();
    advance(LEASE / 8).await;
    assert_eq!(waits(&mut member), Some(IDLE - LEASE / 8), "nobody uses it");
    assert_eq!(
        member.used(7, now()),
        Some(true),
        "it is to be renewed at once"
    );
    assert_eq!(asks(&mut member).kept, [7]);
}

#[tokio::test(start_paused = true)]
async fn a_place_in_a_share_that_nobody_uses_goes_to_another() {
    let mut member = alone();
    member.wait(1, false, false);
    member.wait(2, false, false);
    advance(RECOVERY).await;
    let unused = member.grant_alone(now()).expect("it is its turn");
    member.next_waiting();
    assert_eq!(member.alone_at(now()), Some(unused.until));
    advance(USED_BY).await;
    assert!(member.grant_alone(now()).is_some());
}
