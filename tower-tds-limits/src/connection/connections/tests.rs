#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]

use std::{io, num::NonZeroU32, sync::Arc, time::Duration};

use http::Uri;
use hyper_util::rt::TokioIo;
use proptest::{collection::vec, prelude::*};
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex},
    sync::mpsc,
    time::Instant,
};
use tower::{Layer, ServiceExt, service_fn};

use super::{Connections, Rest, refused};
use crate::{
    ConnectionLimitLayer, LimitedIo, Limiter, Limits,
    connection::exit::Exit,
    queue::{Limit, Line, Opens},
};

type Socket = TokioIo<LimitedIo<TokioIo<DuplexStream>>>;

fn limits(most: u32) -> Limits {
    Limits::default().connections(NonZeroU32::new(most).expect("a count is not zero"))
}

/// A socket and the server's end of it.
async fn open(limiter: &Limiter) -> (Socket, DuplexStream) {
    let (ends, mut accepted) = mpsc::unbounded_channel();
    let connector = service_fn(move |_: Uri| {
        let (client, server) = duplex(1024);
        let sent = ends.send(server);
        async move {
            sent.expect("the test accepts");
            Ok::<_, io::Error>(TokioIo::new(client))
        }
    });
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(connector);
    let socket = connector.oneshot(Uri::from_static("http://a")).await;
    let server = accepted.recv().await.expect("a socket");
    (TokioIo::new(socket.expect("a socket")), server)
}

async fn request(socket: &mut Socket) {
    let request = b"GET / HTTP/1.1\r\n\r\n";
    socket.write_all(request).await.expect("an open socket");
}

async fn answer(socket: &mut Socket, server: &mut DuplexStream) {
    let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
    server.write_all(answer).await.expect("an open socket");
    let mut read = vec![0; answer.len()];
    socket.read_exact(&mut read).await.expect("an answer");
}

/// Whether a read waits, and is not at the end.
async fn stays_open(socket: &mut Socket) -> bool {
    let mut byte = [0];
    let read = tokio::time::timeout(Duration::from_millis(1), socket.read(&mut byte));
    read.await.is_err()
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_sheds_free_sockets_and_no_busy_one() {
    let limiter = Limiter::new(limits(4));
    let (mut free, mut free_server) = open(&limiter).await;
    let (mut busy, mut busy_server) = open(&limiter).await;
    let (mut fresh, fresh_server) = open(&limiter).await;
    request(&mut free).await;
    answer(&mut free, &mut free_server).await;
    request(&mut busy).await;
    for socket in [&mut free, &mut busy, &mut fresh] {
        assert!(stays_open(socket).await);
    }

    let before = Instant::now();
    refused(limiter.connection_readiness().source());
    assert!(!stays_open(&mut free).await);
    assert!(stays_open(&mut busy).await, "its answer is awaited");
    assert!(
        stays_open(&mut fresh).await,
        "its request is about to go out"
    );
    // What becomes free in the silence goes too: it may be the one that was refused.
    answer(&mut busy, &mut busy_server).await;
    assert!(!stays_open(&mut busy).await);
    drop((free, free_server, busy, busy_server));
    tokio::task::yield_now().await;

    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.connections, snapshot.most_connections), (1, 2));
    assert!(snapshot.no_connect_for.is_some());
    // The next connect waits for the end of the silence, and the one after for a place.
    let (_second, _) = open(&limiter).await;
    assert_eq!(before.elapsed().as_secs(), 1);
    assert_eq!(limiter.snapshot().no_connect_for, None);
    // It has not been used for five seconds then, and makes room.
    let third = tokio::spawn({
        let limiter = limiter.clone();
        async move { open(&limiter).await }
    });
    assert_eq!(fresh.read(&mut [0]).await.expect("an end"), 0);
    assert!(before.elapsed() < Duration::from_secs(6), "{before:?}");
    drop((fresh, fresh_server));
    third.await.expect("there is room");
}

#[tokio::test(start_paused = true)]
async fn what_is_written_in_pieces_counts_as_far_as_the_socket_took_it() {
    let limiter = Limiter::new(limits(1));
    let (mut socket, mut server) = open(&limiter).await;
    assert!(socket.is_write_vectored());
    let (head, body) = (
        b"POST / HTTP/1.1\r\nContent-Length: 2000\r\n\r\n",
        [0; 2000],
    );
    let pieces = [io::IoSlice::new(head), io::IoSlice::new(&body)];
    let written = socket.write_vectored(&pieces).await;
    let written = written.expect("an open socket");
    assert!(written < 2000, "the pipe is shorter");
    answer(&mut socket, &mut server).await;
    assert!(stays_open(&mut socket).await);
    refused(limiter.connection_readiness().source());
    assert!(stays_open(&mut socket).await, "its upload goes on");

    let mut read = vec![0; written];
    server
        .read_exact(&mut read)
        .await
        .expect("what was written");
    let rest = body.split_at(written - head.len()).1;
    socket.write_all(rest).await.expect("an open socket");
    assert!(!stays_open(&mut socket).await);
}

#[test]
fn a_socket_that_is_closing_is_expected_for_so_long_and_then_another_is_asked() {
    let mut connections = Connections::new(&limits(2));
    let now = Instant::now();
    let exits: [Arc<Exit>; 2] = Default::default();
    let [dying, idle] = exits.each_ref().map(|exit| {
        connections.admit(Line::Back, now);
        connections.opened(Arc::clone(exit))
    });
    connections.rest(idle, Rest::Free, now);
    let later = now + Duration::from_secs(1);
    connections.ended(dying, later);

    assert!(connections.make_room(later, 1).is_empty(), "one is coming");
    let Opens::At(look_again) = connections.opens(Line::Back, later) else {
        panic!("it may not come");
    };
    assert!(look_again - later < Duration::from_millis(100));
    assert_eq!(connections.make_room(look_again, 1).len(), 1);
    assert!(exits[1].is_asked());
    assert!(connections.make_room(look_again, 1).is_empty(), "it leaves");
    // It does not come either.
    connections.ended(idle, look_again);
    assert!(connections.make_room(look_again, 1).is_empty());
    connections.closed(dying);
    assert_eq!(connections.opens(Line::Back, look_again), Opens::Now);
}

#[derive(Debug, Clone)]
enum Event {
    Connect,
    Fail,
    Open,
    Rest(usize, bool),
    Work(usize),
    End(usize),
    Close(usize),
    Wait(u64, usize),
    Refuse,
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Connect),
        1 => Just(Event::Fail),
        4 => Just(Event::Open),
        4 => (0..8_usize, any::<bool>()).prop_map(|(n, free)| Event::Rest(n, free)),
        2 => (0..8_usize).prop_map(Event::Work),
        2 => (0..8_usize).prop_map(Event::End),
        2 => (0..8_usize).prop_map(Event::Close),
        2 => (0..3_000_u64, 0..4_usize).prop_map(|(ms, n)| Event::Wait(ms, n)),
        1 => Just(Event::Refuse),
    ]
}

proptest! {
    /// Whatever happens: never more open than allowed at the grant, never more asked to leave
    /// than needed, none of them busy, and all is given back in the end.
    #[test]
    fn the_count_is_kept_and_only_idle_sockets_are_asked_to_leave(
        most in 1_u32..6,
        events in vec(events(), 1..200),
    ) {
        let mut connections = Connections::new(&limits(most));
        let mut now = Instant::now();
        let mut connecting = 0_u32;
        let mut closing = Vec::new();
        // Each open socket, and whether it rests.
        let mut open: Vec<(_, Arc<Exit>, bool)> = Vec::new();
        for event in events {
            match event {
                Event::Connect => {
                    if connections.opens(Line::Back, now) == Opens::Now {
                        prop_assert!(connections.open() < connections.most_at(now));
                        connections.admit(Line::Back, now);
                        connecting += 1;
                    }
                }
                Event::Fail if connecting > 0 => {
                    connections.give_back();
                    connecting -= 1;
                }
                Event::Open if connecting > 0 => {
                    let exit = Arc::<Exit>::default();
                    let key = connections.opened(Arc::clone(&exit));
                    open.push((key, exit, false));
                    connecting -= 1;
                }
                Event::Rest(n, free) => {
                    if let Some((key, _, rests)) = open.get_mut(n) {
                        let rest = if free { Rest::Free } else { Rest::Doubtful };
                        connections.rest(*key, rest, now);
                        *rests = true;
                    }
                }
                Event::Work(n) => {
                    if let Some((key, exit, rests)) = open.get_mut(n) {
                        let was_asked = exit.is_asked();
                        prop_assert_eq!(connections.work(*key), was_asked);
                        prop_assert!(!exit.is_asked());
                        *rests = false;
                    }
                }
                Event::End(n) if n < open.len() => {
                    let (key, _, _) = open.swap_remove(n);
                    connections.ended(key, now);
                    closing.push((key, now));
                }
                Event::Close(n) if n < closing.len() => {
                    connections.closed(closing.swap_remove(n).0);
                }
                Event::Wait(ms, waiting) => {
                    now += Duration::from_millis(ms);
                    let leaving = open.iter().filter(|(_, exit, _)| exit.is_asked()).count();
                    let quick = |since| now < since + Duration::from_millis(80);
                    let coming = closing.iter().filter(|(_, since)| quick(*since)).count();
                    let coming = leaving + coming;
                    let asked = connections.make_room(now, waiting);
                    // Whoever waits for a place that is coming needs no other.
                    prop_assert!(asked.len() <= waiting.saturating_sub(coming));
                }
                Event::Refuse => drop(connections.refused_at(now)),
                Event::Fail | Event::Open | Event::End(_) | Event::Close(_) => {}
            }
            let held = u32::try_from(open.len() + closing.len()).expect("few") + connecting;
            prop_assert_eq!(connections.open(), held);
            prop_assert!(open.iter().all(|(_, exit, rests)| *rests || !exit.is_asked()));
            let asked = open.iter().filter(|(_, exit, _)| exit.is_asked()).count();
            prop_assert_eq!(connections.sockets.leaving(), asked);
            if let Opens::At(at) = connections.opens(Line::Back, now) {
                // A look before then would be in vain, and one at once would spin.
                prop_assert!(at > now);
            }
        }
        for (key, _, _) in open {
            connections.ended(key, now);
            connections.closed(key);
        }
        for (key, _) in closing {
            connections.closed(key);
        }
        (0..connecting).for_each(|_| connections.give_back());
        prop_assert_eq!((connections.open(), connections.sockets.expected(now)), (0, 0));
        let later = now + Duration::from_secs(80 * 60);
        prop_assert_eq!(connections.opens(Line::Back, later), Opens::Now);
    }
}
