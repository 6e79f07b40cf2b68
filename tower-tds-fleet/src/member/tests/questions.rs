//! One member's questions and actions, without a store.

use super::*;
use crate::member::Question;

fn share(requests: u32, places: u32, connections: u32) -> Share {
    Share {
        requests,
        places,
        connections,
    }
}

fn idle() -> LimiterState {
    LimiterState {
        whole: share(50, 11, 5),
        unit: 2,
        ..LimiterState::default()
    }
}

fn held(held: Share) -> LimiterState {
    LimiterState { held, ..idle() }
}

fn waiting(waiting: u32) -> LimiterState {
    LimiterState { waiting, ..idle() }
}

fn asks(member: &mut Member, load: LimiterState, now: Instant) -> Question {
    match member.on(Event::Seen(load), now) {
        Action::Ask(question) => question,
        action => panic!("it asks: {action:?}"),
    }
}

fn answered(member: &mut Member, number: u64, silence: Duration, now: Instant) -> Action {
    let share = share(10, 2, 3);
    let clock = Duration::ZERO;
    let answer = Answer {
        share,
        silence,
        clock,
    };
    member.on(Event::Answered(number, answer), now)
}

/// A member whose share begins at `now`.
fn sharing(now: Instant) -> Member {
    let mut member = Member::new(now);
    let number = asks(&mut member, idle(), now).number;
    let action = answered(&mut member, number, Duration::ZERO, now);
    assert_eq!(action, Action::Apply(share(10, 2, 3), now + ms(5_000)));
    member
}

/// The milliseconds from `now` to the next question, under this load.
fn next_question(member: &mut Member, load: LimiterState, now: Instant) -> Option<u64> {
    let is_question = |action| matches!(action, Action::Ask(_));
    (1..5_000).find(|later| is_question(member.on(Event::Seen(load), now + ms(*later))))
}

#[test]
fn question_interval_depends_on_what_a_member_has_to_do() {
    let silenced = LimiterState {
        silence: ms(700),
        ..idle()
    };
    let flying = LimiterState {
        in_flight: 1,
        ..idle()
    };
    for (load, expected) in [
        (idle(), 1_000),
        (held(share(0, 0, 5)), 1_000),
        (waiting(1), 250),
        (flying, 250),
        (held(share(1, 0, 0)), 250),
        (silenced, 250),
    ] {
        let mut member = sharing(Instant::now());
        let last = member.last.unwrap();
        let next = next_question(&mut member, load, last);
        assert_eq!(next, Some(expected), "{load:?}");
    }
}

#[test]
fn question_wants_held_and_waiting_up_to_the_limits() {
    let flying = LimiterState {
        in_flight: 1,
        ..idle()
    };
    let busy = LimiterState {
        held: share(2, 1, 2),
        waiting: 3,
        without_socket: 2,
        ..idle()
    };
    let many = LimiterState {
        held: share(2, 1, 4),
        without_socket: 3,
        whole: share(50, 11, 20),
        ..busy
    };
    for (load, wanted) in [
        (held(share(0, 0, 4)), share(0, 0, 4)),
        (held(share(0, 3, 0)), share(0, 0, 0)),
        (flying, share(2, 1, 2)),
        (waiting(1), share(2, 1, 2)),
        (held(share(5, 0, 0)), share(5, 1, 2)),
        (busy, share(8, 4, 4)),
        (many, share(8, 4, 7)),
        (waiting(u32::MAX), share(50, 11, 2)),
    ] {
        let now = Instant::now();
        let mut member = Member::new(now);
        let question = asks(&mut member, load, now);
        assert_eq!(question.wanted, wanted, "{load:?}");
        assert!(!question.leaves);
    }
}

#[test]
fn leaving_member_wants_no_more_requests_than_it_holds() {
    let now = Instant::now();
    let load = LimiterState {
        held: share(2, 1, 2),
        waiting: 30,
        ..idle()
    };
    let mut member = Member::new(now);
    member.has_left(load, now);
    assert_eq!(asks(&mut member, load, now).wanted, share(2, 1, 3));
}

#[test]
fn expired_share_is_taken_back_once() {
    let now = Instant::now();
    let mut member = sharing(now);
    assert_eq!(next_question(&mut member, idle(), now), Some(1_000));
    let before = member.on(Event::Seen(idle()), now + ms(4_999));
    assert!(!matches!(before, Action::Apply(..)), "{before:?}");
    let end = now + ms(5_000);
    let over = member.on(Event::Seen(idle()), end);
    assert_eq!(over, Action::Apply(Share::default(), end));
    let after = member.on(Event::Seen(idle()), end);
    assert!(!matches!(after, Action::Apply(..)), "{after:?}");
}

#[test]
fn silence_suspends_the_requests_of_a_share() {
    let now = Instant::now();
    let end = now + ms(5_000);
    let mut member = Member::new(now);
    let number = asks(&mut member, idle(), now).number;
    let silenced = answered(&mut member, number, ms(300), now);
    assert_eq!(silenced, Action::Apply(share(0, 2, 3), end));
    let before = member.on(Event::Seen(idle()), now + ms(299));
    assert_eq!(before, Action::Wait);
    let after = member.on(Event::Seen(idle()), now + ms(300));
    assert_eq!(after, Action::Apply(share(10, 2, 3), end));
    let after = member.on(Event::Seen(idle()), now + ms(300));
    assert_eq!(after, Action::Wait);
}

#[test]
fn idle_sockets_above_the_share_are_closed_once() {
    let now = Instant::now();
    let sockets = |connections| held(share(0, 0, connections));
    let close = Action::CloseIdle(share(10, 2, 3), now + ms(5_000));
    let busy = LimiterState {
        in_flight: 1,
        ..sockets(5)
    };
    let mut member = sharing(now);
    for (load, expected) in [
        (sockets(3), Action::Wait),
        (sockets(2), Action::Wait),
        (busy, Action::Wait),
        (sockets(4), close),
        (sockets(5), Action::Wait),
        (busy, Action::Wait),
        (sockets(4), close),
    ] {
        assert_eq!(member.on(Event::Seen(load), now), expected, "{load:?}");
    }
    // A member without a share closes no sockets.
    let mut member = Member::new(now);
    asks(&mut member, sockets(5), now);
}

#[test]
fn leaving_member_may_go_when_it_holds_nothing_or_after_five_seconds() {
    let now = Instant::now();
    let load = held(share(1, 0, 0));
    assert!(sharing(now).has_left(idle(), now));
    let mut member = sharing(now);
    assert!(!member.has_left(load, now));
    assert!(!member.has_left(load, now + ms(4_999)));
    assert!(member.has_left(load, now + ms(5_000)));
    // A leaving member sends questions as often as one with waiting calls, and its share has no
    // sockets for calls.
    assert_eq!(next_question(&mut member, load, now), Some(250));
    let last = answered(&mut member, 2, Duration::ZERO, now + ms(250));
    assert_eq!(last, Action::Apply(share(10, 2, 0), now + ms(5_250)));
    let question = member.leave(load, now + ms(300));
    assert!(question.leaves);
    assert_eq!(question.number, 3);
    assert_eq!(
        (question.share, question.claim),
        (Share::default(), load.held)
    );
}
