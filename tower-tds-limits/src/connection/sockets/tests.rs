#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use http::StatusCode;
use proptest::{collection::vec, prelude::*};
use tokio::time::Instant;

use super::{Connections, Evidence, SocketKey, State};
use crate::{
    Limits,
    connection::{
        usage::{Head, Rest, Usage},
        waiting::Waiting,
    },
    queue::{Limit, Line, Opens},
};

fn connections(most: u32) -> Connections {
    let most = NonZeroU32::new(most).expect("a count is not zero");
    Connections::new(&Limits::default().connections(most))
}

/// A socket that is free until something is written on it, and free again when that is answered.
fn open(connections: &mut Connections, now: Instant) -> SocketKey {
    connections.admit(now);
    connections.opened(Rest::Free, Arc::default(), now).0
}

fn work(connections: &mut Connections, socket: SocketKey, now: Instant) {
    connections.change(socket, |usage| usage.wrote(false));
    connections.settle(socket, now);
}

fn rest(connections: &mut Connections, socket: SocketKey, now: Instant) {
    let head = Head {
        status: StatusCode::OK,
        http2: false,
        upgrade: false,
    };
    connections.head(socket, false, head, None);
    connections.change(socket, Usage::ended);
    connections.settle(socket, now);
}

/// How many are asked to leave because so many wait.
fn looked(connections: &mut Connections, waiting: usize, now: Instant) -> usize {
    let asked = |connections: &Connections| {
        let keys = connections.sockets.keys();
        keys.filter(|key| is_asked(connections, **key)).count()
    };
    let before = asked(connections);
    connections.waits(waiting, now);
    asked(connections) - before
}

fn is_asked(connections: &Connections, socket: SocketKey) -> bool {
    matches!(connections.sockets[&socket].state, State::Leaving { .. })
}

const MOMENT: Duration = Duration::from_millis(20);

#[test]
fn a_socket_that_is_closing_is_expected_for_so_long_and_then_another_is_asked() {
    let mut connections = connections(2);
    let now = Instant::now();
    let (dying, idle) = (open(&mut connections, now), open(&mut connections, now));
    let later = now + Duration::from_secs(1);
    connections.ended(dying, later);

    assert_eq!(looked(&mut connections, 1, later), 0, "one is coming");
    let Opens::At(look_again) = connections.opens(Line::Back, later) else {
        panic!("it may not come");
    };
    assert!(look_again - later < Duration::from_millis(100));
    assert_eq!(looked(&mut connections, 1, look_again), 1);
    assert!(is_asked(&connections, idle));
    assert_eq!(looked(&mut connections, 1, look_again), 0, "it leaves");
    // It does not come either.
    connections.ended(idle, look_again);
    assert_eq!(looked(&mut connections, 1, look_again), 0);
    connections.closed(dying);
    assert_eq!(connections.opens(Line::Back, look_again), Opens::Now);
}

#[test]
fn the_socket_that_has_been_free_for_longest_leaves_first_and_not_before_a_moment_has_passed() {
    let mut connections = connections(2);
    let now = Instant::now();
    let (first, second) = (open(&mut connections, now), open(&mut connections, now));
    work(&mut connections, first, now);
    rest(&mut connections, first, now + MOMENT);
    assert_eq!(looked(&mut connections, 1, now), 0);
    assert_eq!(looked(&mut connections, 1, now + MOMENT), 1);
    assert!(is_asked(&connections, second), "it is free for longer");
}

#[test]
fn who_is_passed_over_by_a_pool_gets_the_next_socket_that_becomes_free() {
    let mut connections = connections(1);
    let mut now = Instant::now();
    let socket = open(&mut connections, now);
    work(&mut connections, socket, now);
    connections.waits(2, now);
    // The socket goes to the one behind, who leaves the queue for it.
    rest(&mut connections, socket, now);
    work(&mut connections, socket, now);
    connections.waits(1, now);
    connections.served(false, now);
    now += MOMENT;
    assert_eq!(looked(&mut connections, 1, now), 0, "it is busy");
    rest(&mut connections, socket, now);
    assert_eq!(looked(&mut connections, 1, now), 1, "at once");
}

#[test]
fn who_is_served_in_turn_is_not_passed_over() {
    let mut connections = connections(1);
    let mut now = Instant::now();
    let socket = open(&mut connections, now);
    work(&mut connections, socket, now);
    connections.waits(10, now);
    for waiting in (0..10).rev() {
        now += 5 * MOMENT;
        rest(&mut connections, socket, now);
        assert_eq!(looked(&mut connections, waiting + 1, now), 0, "{waiting}");
        // It leaves the queue before its request is written, or after that.
        if waiting % 2 == 0 {
            connections.waits(waiting, now);
            connections.served(true, now);
            work(&mut connections, socket, now);
        } else {
            work(&mut connections, socket, now);
            connections.waits(waiting, now);
            connections.served(true, now);
        }
    }
}

#[test]
fn a_pool_that_never_queues_passes_over_whoever_waits_too() {
    let mut connections = connections(1);
    let mut now = Instant::now();
    let socket = open(&mut connections, now);
    work(&mut connections, socket, now);
    connections.waits(1, now);
    rest(&mut connections, socket, now);
    work(&mut connections, socket, now);
    now += MOMENT;
    // There is nothing to look at before it is free again.
    assert_eq!(connections.opens(Line::Back, now), Opens::OnReturn);
    rest(&mut connections, socket, now);
    assert_eq!(looked(&mut connections, 1, now), 1);
}

/// Nobody would wake its reader again.
#[test]
fn a_request_that_comes_and_goes_between_two_looks_takes_back_that_the_socket_shall_leave() {
    let mut connections = connections(1);
    let now = Instant::now();
    let socket = open(&mut connections, now);
    assert_eq!(looked(&mut connections, 1, now + MOMENT), 1);
    // One thread has written, and another hears the answer before the limit has looked.
    connections.change(socket, |usage| usage.wrote(false));
    rest(&mut connections, socket, now + MOMENT);
    connections.settle(socket, now + MOMENT);
    assert!(!is_asked(&connections, socket));
    assert_eq!(looked(&mut connections, 1, now + 2 * MOMENT), 1, "again");
}

#[derive(Debug, Clone)]
enum Event {
    Connect,
    Fail,
    Open,
    Rest(usize),
    Work(usize),
    End(usize),
    Close(usize),
    Wait(u64),
    Join,
    Leave(usize, bool),
    Refuse(usize),
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Connect),
        1 => Just(Event::Fail),
        4 => Just(Event::Open),
        4 => (0..8_usize).prop_map(Event::Rest),
        2 => (0..8_usize).prop_map(Event::Work),
        2 => (0..8_usize).prop_map(Event::End),
        2 => (0..8_usize).prop_map(Event::Close),
        2 => (0..3_000_u64).prop_map(Event::Wait),
        2 => Just(Event::Join),
        2 => (0..8_usize, any::<bool>()).prop_map(|(n, served)| Event::Leave(n, served)),
        1 => (0..8_usize).prop_map(Event::Refuse),
    ]
}

proptest! {
    /// Whatever happens: never more open than allowed at the grant, no busy socket is asked to
    /// leave, nobody looks in vain, and all is given back in the end.
    #[test]
    fn the_count_is_kept_and_only_idle_sockets_are_asked_to_leave(
        most in 1_u32..6,
        events in vec(events(), 1..200),
    ) {
        let mut connections = connections(most);
        let mut now = Instant::now();
        let mut connecting = 0_u32;
        let mut closing = Vec::new();
        let mut waiting = 0_usize;
        // Each open socket, and whether it rests.
        let mut sockets: Vec<(SocketKey, bool)> = Vec::new();
        for event in events {
            match event {
                Event::Connect => {
                    if connections.opens(Line::Back, now) == Opens::Now {
                        prop_assert!(connections.open() < connections.most_at(now));
                        connections.admit(now);
                        connecting += 1;
                    }
                }
                Event::Fail if connecting > 0 => {
                    connections.withdraw(());
                    connecting -= 1;
                }
                Event::Open if connecting > 0 => {
                    sockets.push((connections.opened(Rest::Free, Arc::default(), now).0, true));
                    connecting -= 1;
                }
                Event::Rest(n) => {
                    if let Some((socket, rests)) = sockets.get_mut(n) {
                        rest(&mut connections, *socket, now);
                        *rests = true;
                    }
                }
                Event::Work(n) => {
                    if let Some((socket, rests)) = sockets.get_mut(n) {
                        work(&mut connections, *socket, now);
                        *rests = false;
                    }
                }
                Event::End(n) if n < sockets.len() => {
                    let (key, _) = sockets.swap_remove(n);
                    connections.ended(key, now);
                    closing.push(key);
                }
                Event::Close(n) if n < closing.len() => {
                    connections.closed(closing.swap_remove(n));
                }
                Event::Wait(ms) => {
                    now += Duration::from_millis(ms);
                    // Whoever waits for a place that is coming needs no other.
                    prop_assert!(looked(&mut connections, waiting, now) <= waiting);
                }
                Event::Join => {
                    waiting += 1;
                    connections.waits(waiting, now);
                }
                Event::Leave(n, served) if n < waiting => {
                    waiting -= 1;
                    connections.waits(waiting, now);
                    if served {
                        connections.served(n == 0, now);
                    }
                }
                Event::Refuse(n) => {
                    if let Some((key, _)) = sockets.get(n) {
                        let evidence = if n % 2 == 0 { Evidence::Weak } else { Evidence::Strong };
                        connections.maybe_refused = Some((*key, evidence));
                    }
                    connections.refused(now);
                }
                Event::Fail | Event::Open | Event::End(_) | Event::Close(_) | Event::Leave(..) => {}
            }
            let held = u32::try_from(sockets.len() + closing.len()).expect("few") + connecting;
            prop_assert_eq!(connections.open(), held);
            prop_assert!(sockets.iter().all(|(key, rests)| *rests || !is_asked(&connections, *key)));
            let coming = |key: SocketKey| connections.coming.iter().any(|(_, other)| *other == key);
            prop_assert!(sockets.iter().all(|(key, _)| is_asked(&connections, *key) || !coming(*key)));
            if let Opens::At(at) = connections.opens(Line::Back, now) {
                // A look before then would be in vain, and one at once would spin.
                prop_assert!(at > now);
            }
        }
        for (key, _) in sockets {
            connections.ended(key, now);
            connections.closed(key);
        }
        for key in closing {
            connections.closed(key);
        }
        (0..connecting).for_each(|_| connections.withdraw(()));
        prop_assert_eq!((connections.open(), connections.coming(now)), (0, 0));
        prop_assert_eq!((connections.untried, connections.idle.len()), (0, 0));
        let later = now + Duration::from_secs(80 * 60);
        prop_assert_eq!(connections.opens(Line::Back, later), Opens::Now);
    }
}

#[test]
fn a_416_on_a_socket_that_had_worked_and_has_ended_is_weak_evidence() {
    let now = Instant::now();
    let head = Head {
        status: StatusCode::RANGE_NOT_SATISFIABLE,
        http2: false,
        upgrade: false,
    };
    let mut lowered = Vec::new();
    for has_worked in [true, false] {
        let mut connections = connections(60);
        let sockets: Vec<_> = (0..60).map(|_| open(&mut connections, now)).collect();
        for &socket in &sockets {
            work(&mut connections, socket, now);
            rest(&mut connections, socket, now);
        }
        connections.ended(sockets[0], now);
        connections.head(sockets[0], has_worked, head, None);
        let (_, silent) = connections.refused(now);
        lowered.push(silent);
    }
    assert_eq!(lowered, [false, true]);
}

#[test]
fn nobody_is_passed_over_for_those_who_waited_before() {
    let now = Instant::now();
    let mut waiting = Waiting::default();
    waiting.set(1);
    waiting.hand_on(now);
    waiting.set(0);
    waiting.set(1);
    assert!(!waiting.is_passed_over(now + Duration::from_secs(600)));
}
