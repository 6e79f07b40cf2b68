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

fn idle() -> Load {
    Load {
        whole: share(50, 11, 5),
        unit: 2,
        ..Load::default()
    }
}

fn held(held: Share) -> Load {
    Load { held, ..idle() }
}

fn waiting(waiting: u32) -> Load {
    Load { waiting, ..idle() }
}

fn asks(member: &mut Member, load: Load, now: Instant) -> Question {
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
fn next_question(member: &mut Member, load: Load, now: Instant) -> Option<u64> {
    let is_question = |action| matches!(action, Action::Ask(_));
    (1..5_000).find(|later| is_question(member.on(Event::Seen(load), now + ms(*later))))
}

#[test]
fn question_interval_depends_on_waiting_calls_and_changes() {
    let over = held(share(20, 0, 0));
    let silenced = Load {
        silence: ms(700),
        ..idle()
    };
    let paused = Load {
        pause: ms(700),
        ..idle()
    };
    for (before, after, expected) in [
        (idle(), idle(), 1_000),
        (idle(), waiting(1), 250),
        (waiting(1), waiting(1), 250),
        (waiting(1), idle(), 100),
        (idle(), over, 1_000),
        (over, over, 1_000),
        (over, idle(), 100),
        (idle(), silenced, 100),
        (idle(), paused, 100),
        (silenced, paused, 1_000),
        (silenced, idle(), 1_000),
    ] {
        let mut member = sharing(Instant::now());
        let now = Instant::now() + ms(1_000);
        let number = asks(&mut member, before, now).number;
        answered(&mut member, number, Duration::ZERO, now);
        let next = next_question(&mut member, after, now);
        assert_eq!(next, Some(expected), "{before:?} {after:?}");
    }
}

#[test]
fn member_asks_again_after_an_unanswered_or_failed_question() {
    let now = Instant::now();
    let mut member = Member::new(now);
    let first = asks(&mut member, idle(), now);
    assert_eq!(first.number, 1);
    assert_eq!(next_question(&mut member, idle(), now), Some(2_000));
    let later = now + ms(2_000);
    member.on(Event::Failed(2), later);
    assert_eq!(next_question(&mut member, idle(), later), Some(1_000));
    assert_eq!(member.number, 3);
}

#[test]
fn question_wants_held_and_waiting_up_to_the_limits() {
    let flying = Load {
        in_flight: 1,
        ..idle()
    };
    let busy = Load {
        held: share(2, 1, 2),
        waiting: 3,
        without_socket: 2,
        ..idle()
    };
    let many = Load {
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
    let load = Load {
        held: share(2, 1, 2),
        waiting: 30,
        ..idle()
    };
    let mut member = Member::new(now);
    member.has_left(load, now);
    assert_eq!(asks(&mut member, load, now).wanted, share(2, 1, 3));
}

#[test]
fn claim_is_the_larger_of_share_and_held() {
    let now = Instant::now();
    let mut member = sharing(now);
    let question = asks(&mut member, held(share(4, 5, 1)), now + ms(1_000));
    assert_eq!(question.share, share(10, 2, 3));
    assert_eq!(question.claim, share(10, 5, 3));
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
    let busy = Load {
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

#[test]
fn answer_of_a_clock_that_was_set_forward_is_reported_and_not_used() {
    // Milliseconds from the first question to its answer, to the second question and its answer;
    // and how far the store's clock has gone between the two answers.
    for (times, clock, stepped) in [
        ([0, 1_000, 1_000], 1_000, false),
        ([0, 1_000, 1_000], 2_000, false),
        ([0, 1_000, 1_000], 2_001, true),
        ([0, 1_000, 1_000], 21_000, true),
        ([0, 1_000, 1_000], 0, false),
        // The first question was answered at once, and the second one as late as possible.
        ([1_900, 2_000, 3_900], 4_900, false),
        ([1_900, 2_000, 3_900], 4_901, true),
    ] {
        let now = Instant::now();
        let [first, asked, second] = times.map(|millis| now + ms(millis));
        let mut member = Member::new(now);
        let answer = |clock: u64, connections| Answer {
            share: share(10, 2, connections),
            silence: Duration::ZERO,
            clock: ms(50_000 + clock),
        };
        let number = asks(&mut member, waiting(1), now).number;
        member.on(Event::Answered(number, answer(0, 3)), first);
        let question = asks(&mut member, waiting(1), asked);
        assert!(!question.stepped);
        member.on(Event::Answered(question.number, answer(clock, 4)), second);
        let name = format!("{times:?} {clock}");
        let expected = if stepped { 3 } else { 4 };
        assert_eq!(member.share(second).connections, expected, "{name}");
        let next = asks(&mut member, waiting(1), second + ms(250));
        assert_eq!(next.stepped, stepped, "{name}");
        // The answer to the report is used, and it is reported once.
        member.on(
            Event::Answered(next.number, answer(clock + 250, 5)),
            second + ms(250),
        );
        assert_eq!(member.share(second + ms(250)).connections, 5, "{name}");
        assert!(!asks(&mut member, waiting(1), second + ms(500)).stepped);
    }
}

#[test]
fn suspended_member_takes_no_answer_for_a_step() {
    let now = Instant::now();
    let mut member = sharing(now);
    let suspended = Load {
        suspended: true,
        ..idle()
    };
    member.on(Event::Seen(suspended), now);
    let later = now + ms(1_000);
    let question = asks(&mut member, idle(), later);
    let answer = Answer {
        share: share(10, 2, 3),
        silence: Duration::ZERO,
        clock: ms(3_600_000),
    };
    member.on(Event::Answered(question.number, answer), later);
    assert_eq!(member.share(later), answer.share);
}
