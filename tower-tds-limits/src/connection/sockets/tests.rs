#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use proptest::{collection::vec, prelude::*};
use tokio::time::Instant;

use super::{Connections, SocketKey};
use crate::{
    Limits,
    connection::{
        usage::{Origin, Usage},
        waiting::Ticket,
    },
    queue::{Limit, Line, Opens},
};

fn connections(most: u32) -> Connections {
    let most = NonZeroU32::new(most).expect("a count is not zero");
    Connections::new(&Limits::default().connections(most))
}

/// A socket that is free until something is written on it, and free again when that is undone.
fn open(connections: &mut Connections, now: Instant) -> (SocketKey, Arc<Usage>) {
    connections.admit(now);
    let usage = Arc::new(Usage::new(Origin::Background));
    let key = connections.opened(Arc::clone(&usage));
    assert!(connections.settle(key, now).is_empty());
    (key, usage)
}

fn work(connections: &mut Connections, socket: &(SocketKey, Arc<Usage>), now: Instant) {
    let _told = socket.1.wrote(true);
    connections.settle(socket.0, now);
}

fn rest(
    connections: &mut Connections,
    socket: &(SocketKey, Arc<Usage>),
    now: Instant,
) -> Vec<Arc<Usage>> {
    socket.1.unblock();
    connections.settle(socket.0, now)
}

const MOMENT: Duration = Duration::from_millis(20);

#[test]
fn a_socket_that_is_closing_is_expected_for_so_long_and_then_another_is_asked() {
    let mut connections = connections(2);
    let now = Instant::now();
    let (dying, idle) = (open(&mut connections, now), open(&mut connections, now));
    let later = now + Duration::from_secs(1);
    connections.ended(dying.0, later);
    connections.waits();

    assert!(connections.looked(later).is_empty(), "one is coming");
    let Opens::At(look_again) = connections.opens(Line::Back, later) else {
        panic!("it may not come");
    };
    assert!(look_again - later < Duration::from_millis(100));
    assert_eq!(connections.looked(look_again).len(), 1);
    assert!(idle.1.rest().1, "asked");
    assert!(connections.looked(look_again).is_empty(), "it leaves");
    // It does not come either.
    connections.ended(idle.0, look_again);
    assert!(connections.looked(look_again).is_empty());
    connections.closed(dying.0);
    assert_eq!(connections.opens(Line::Back, look_again), Opens::Now);
}

#[test]
fn the_socket_that_has_been_free_for_longest_leaves_first_and_not_before_a_moment_has_passed() {
    let mut connections = connections(2);
    let now = Instant::now();
    let (first, second) = (open(&mut connections, now), open(&mut connections, now));
    work(&mut connections, &first, now);
    rest(&mut connections, &first, now + MOMENT);
    connections.waits();
    assert!(connections.looked(now).is_empty());
    assert_eq!(connections.looked(now + MOMENT).len(), 1);
    assert!(second.1.rest().1, "it is free for longer");
}

#[test]
fn who_is_passed_over_by_a_pool_gets_the_next_socket_that_becomes_free() {
    let mut connections = connections(1);
    let mut now = Instant::now();
    let socket = open(&mut connections, now);
    work(&mut connections, &socket, now);
    let first = connections.waits();
    let second = connections.waits();
    // The socket goes to the one behind, who leaves the queue for it.
    rest(&mut connections, &socket, now);
    work(&mut connections, &socket, now);
    connections.was_served(second, now);
    now += MOMENT;
    assert!(connections.looked(now).is_empty(), "it is busy");
    assert_eq!(rest(&mut connections, &socket, now).len(), 1, "at once");
    connections.waits_no_more(first);
}

#[test]
fn who_is_served_in_turn_is_not_passed_over() {
    let mut connections = connections(1);
    let mut now = Instant::now();
    let socket = open(&mut connections, now);
    work(&mut connections, &socket, now);
    let waiting: Vec<Ticket> = (0..10).map(|_| connections.waits()).collect();
    for (n, ticket) in waiting.into_iter().enumerate() {
        now += 5 * MOMENT;
        assert!(rest(&mut connections, &socket, now).is_empty(), "the {n}th");
        // It leaves the queue before its request is written, or after that.
        if n % 2 == 0 {
            connections.was_served(ticket, now);
            work(&mut connections, &socket, now);
        } else {
            work(&mut connections, &socket, now);
            connections.was_served(ticket, now);
        }
    }
}

#[test]
fn a_pool_that_never_queues_passes_over_whoever_waits_too() {
    let mut connections = connections(1);
    let mut now = Instant::now();
    let socket = open(&mut connections, now);
    work(&mut connections, &socket, now);
    let _first = connections.waits();
    rest(&mut connections, &socket, now);
    work(&mut connections, &socket, now);
    now += MOMENT;
    assert_eq!(connections.opens(Line::Back, now - MOMENT), Opens::At(now));
    assert_eq!(rest(&mut connections, &socket, now).len(), 1);
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
        let mut waiting = Vec::new();
        // Each open socket, and whether it rests.
        let mut sockets: Vec<((SocketKey, Arc<Usage>), bool)> = Vec::new();
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
                    let usage = Arc::new(Usage::new(Origin::Background));
                    let key = connections.opened(Arc::clone(&usage));
                    connections.settle(key, now);
                    sockets.push(((key, usage), true));
                    connecting -= 1;
                }
                Event::Rest(n) => {
                    if let Some((socket, rests)) = sockets.get_mut(n) {
                        rest(&mut connections, socket, now);
                        *rests = true;
                    }
                }
                Event::Work(n) => {
                    if let Some((socket, rests)) = sockets.get_mut(n) {
                        work(&mut connections, socket, now);
                        *rests = false;
                    }
                }
                Event::End(n) if n < sockets.len() => {
                    let ((key, _), _) = sockets.swap_remove(n);
                    connections.ended(key, now);
                    closing.push(key);
                }
                Event::Close(n) if n < closing.len() => {
                    connections.closed(closing.swap_remove(n));
                }
                Event::Wait(ms) => {
                    now += Duration::from_millis(ms);
                    let asked = connections.looked(now);
                    // Whoever waits for a place that is coming needs no other.
                    prop_assert!(asked.len() <= waiting.len());
                }
                Event::Join => waiting.push(connections.waits()),
                Event::Leave(n, served) if n < waiting.len() => {
                    let ticket = waiting.swap_remove(n);
                    if served {
                        connections.was_served(ticket, now);
                    } else {
                        connections.waits_no_more(ticket);
                    }
                }
                Event::Refuse(n) => {
                    if let Some(((key, _), _)) = sockets.get(n) {
                        connections.maybe_refused(*key, n % 2 == 0);
                    }
                    connections.refused(now);
                }
                Event::Fail | Event::Open | Event::End(_) | Event::Close(_) | Event::Leave(..) => {}
            }
            let held = u32::try_from(sockets.len() + closing.len()).expect("few") + connecting;
            prop_assert_eq!(connections.open(), held);
            prop_assert!(sockets.iter().all(|((_, usage), rests)| *rests || !usage.rest().1));
            let asked = sockets.iter().filter(|((_, usage), _)| usage.rest().1).count();
            prop_assert_eq!(connections.leaving, asked);
            if let Opens::At(at) = connections.opens(Line::Back, now) {
                // A look before then would be in vain, and one at once would spin.
                prop_assert!(at > now);
            }
        }
        for ((key, _), _) in sockets {
            connections.ended(key, now);
            connections.closed(key);
        }
        for key in closing {
            connections.closed(key);
        }
        (0..connecting).for_each(|_| connections.withdraw(()));
        prop_assert_eq!((connections.open(), connections.coming(now)), (0, 0));
        prop_assert_eq!((connections.untried, connections.free.len()), (0, 0));
        let later = now + Duration::from_secs(80 * 60);
        prop_assert_eq!(connections.opens(Line::Back, later), Opens::Now);
    }
}
