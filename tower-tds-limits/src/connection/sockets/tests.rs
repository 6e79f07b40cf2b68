use std::{num::NonZeroU32, sync::Arc, time::Duration};

use http::StatusCode;
use proptest::{collection::vec, prelude::*};
use tokio::time::Instant;

use super::{Connections, SocketKey, State};
use crate::{
    Limits,
    connection::usage::{Head, Rest, Usage},
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
        opaque: false,
    };
    connections.head(socket, head, None);
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
    Leave,
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
        2 => Just(Event::Leave),
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
                Event::Leave if waiting > 0 => {
                    waiting -= 1;
                    connections.waits(waiting, now);
                }
                Event::Refuse(n) => {
                    connections.maybe_refused = sockets.get(n).map(|(key, _)| *key);
                    connections.refused(now);
                }
                Event::Fail | Event::Open | Event::End(_) | Event::Close(_) | Event::Leave => {}
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
        prop_assert_eq!(connections.idle.len(), 0);
        let later = now + Duration::from_secs(80 * 60);
        prop_assert_eq!(connections.opens(Line::Back, later), Opens::Now);
    }
}
