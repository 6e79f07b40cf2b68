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

/// A limiter that holds this, with so many calls in flight, waiting, and waiting for a socket.
fn load(held: Share, [in_flight, waiting, without_socket]: [u32; 3]) -> LimiterState {
    LimiterState {
        held,
        in_flight,
        waiting,
        without_socket,
        whole: share(50, 11, 20),
        ..LimiterState::default()
    }
}

fn asks(member: &mut Member, load: LimiterState, now: Instant) -> Question {
    match member.on(Event::Seen(load), now) {
        Action::Ask(question) => question,
        action => panic!("it asks: {action:?}"),
    }
}

fn answered(member: &mut Member, number: u64, silence: u64, now: Instant) -> Action {
    let answer = Answer {
        share: share(10, 2, 3),
        silence: ms(silence),
        clock: Duration::ZERO,
    };
    member.on(Event::Answered(number, answer), now)
}

/// A member whose share begins at `now`.
fn sharing(now: Instant) -> Member {
    let mut member = Member::new(2);
    let number = asks(&mut member, LimiterState::default(), now).number;
    let action = answered(&mut member, number, 0, now);
    assert_eq!(action, Action::Apply(share(10, 2, 3), now + ms(5_000)));
    member
}

/// For each state of the limiter: the wanted share, and the milliseconds until the next question.
#[test]
fn questions_want_what_is_held_and_waited_for_and_are_rare_while_idle() {
    let none = [0; 3];
    for (load, wanted, expected) in [
        (load(share(0, 0, 4), none), share(0, 0, 4), 1_000),
        (load(share(0, 3, 0), none), share(0, 0, 0), 1_000),
        (load(share(0, 0, 0), [1, 0, 0]), share(2, 1, 2), 250),
        (load(share(0, 0, 0), [0, 1, 0]), share(2, 1, 2), 250),
        (load(share(5, 0, 0), none), share(5, 1, 2), 250),
        (load(share(2, 1, 2), [0, 3, 2]), share(8, 4, 4), 250),
        (load(share(2, 1, 4), [0, 3, 3]), share(8, 4, 7), 250),
        (
            load(share(0, 0, 0), [0, u32::MAX, 0]),
            share(50, 11, 2),
            250,
        ),
    ] {
        let now = Instant::now();
        let mut member = sharing(now);
        let asks = |later: u64| match member.on(Event::Seen(load), now + ms(later)) {
            Action::Ask(question) => Some((question.wanted, later)),
            _ => None,
        };
        let asked = (1..5_000).find_map(asks);
        assert_eq!(asked, Some((wanted, expected)), "{load:?}");
    }
}

/// Checks the action after each event, from the beginning of a share on.
#[test]
fn share_is_applied_without_requests_in_a_silence_and_ends_once() {
    let now = Instant::now();
    let idle = LimiterState::default();
    let mut member = sharing(now);
    let silenced = LimiterState {
        silence: ms(700),
        ..idle
    };
    let mut next = |load, at: u64, silence| {
        let number = asks(&mut member, load, now + ms(at)).number;
        answered(&mut member, number, silence, now + ms(at))
    };
    let until = |millis| now + ms(millis);
    assert_eq!(
        next(idle, 1_000, 300),
        Action::Apply(share(0, 2, 3), until(6_000))
    );
    // During its own silence, questions are more frequent.
    assert_eq!(
        next(silenced, 1_250, 0),
        Action::Apply(share(10, 2, 3), until(6_250))
    );
    let end = now + ms(6_250);
    asks(&mut member, idle, end - ms(1));
    assert_eq!(member.share(end - ms(1)), share(10, 2, 3));
    assert_eq!(
        member.on(Event::Seen(idle), end),
        Action::Apply(Share::default(), end)
    );
    assert_eq!(member.on(Event::Seen(idle), end), Action::Wait);
}

#[test]
fn suspended_member_drops_its_share_and_its_question() {
    let now = Instant::now();
    let waiting = load(Share::default(), [0, 1, 0]);
    let suspended = LimiterState {
        suspended: true,
        ..waiting
    };
    let mut member = sharing(now);
    let later = now + ms(300);
    let second = asks(&mut member, waiting, later).number;
    // Runs with a share, and without one.
    for _ in 0..2 {
        let over = member.on(Event::Seen(suspended), later);
        assert_eq!(over, Action::Apply(Share::default(), later));
        let answer = answered(&mut member, second, 0, later);
        assert_eq!(answer, Action::Wait, "it is too old");
        assert_eq!(member.share(later), Share::default());
    }
}

#[test]
fn leaving_member_may_go_when_it_holds_nothing_or_after_five_seconds() {
    let now = Instant::now();
    let holds = load(share(2, 1, 2), [0, 30, 0]);
    assert!(sharing(now).has_left(LimiterState::default(), now));
    let mut member = sharing(now);
    assert!(!member.has_left(holds, now));
    assert!(!member.has_left(holds, now + ms(4_999)));
    assert!(member.has_left(holds, now + ms(5_000)));
    // Waiting calls want nothing, and no sockets are left for them.
    let question = asks(&mut member, holds, now + ms(250));
    assert_eq!(question.wanted, share(2, 1, 3));
    let last = answered(&mut member, question.number, 0, now + ms(250));
    assert_eq!(last, Action::Apply(share(10, 2, 0), now + ms(5_250)));
    let question = member.leave(holds, now + ms(300));
    assert!(question.leaves);
    let left = (question.share, question.held);
    assert_eq!(left, (Share::default(), holds.held));
}
