//! Real sockets under a paused clock, so that only the relay's timers take time.

use std::io::ErrorKind;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;
use crate::Delay;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn network(there: Delay, back: Delay) -> Network {
    Network {
        there,
        back,
        ..Network::default()
    }
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A client's socket and the server's, with a relay between them.
async fn pair(network: Network) -> (Relay, TcpStream, TcpStream) {
    let (listener, to) = listen().await;
    let relay = Relay::start(to, network).await.unwrap();
    let client = TcpStream::connect(relay.address()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (relay, client, server)
}

async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    bytes
}

/// Waits until the relay has closed everything; the relay's tasks run meanwhile.
async fn all_closed(relay: &Relay) {
    while relay.counts().open > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn relay_delays_each_direction_and_the_connect() {
    let (listener, to) = listen().await;
    let delays = network(Delay::Constant(ms(40)), Delay::Constant(ms(25)));
    let relay = Relay::start(to, delays).await.unwrap();
    let start = Instant::now();
    let mut client = TcpStream::connect(relay.address()).await.unwrap();
    assert_eq!(start.elapsed(), ms(0));
    let (mut server, _) = listener.accept().await.unwrap();
    assert!(start.elapsed() >= ms(40));

    let sent = Instant::now();
    client.write_all(b"ping").await.unwrap();
    let mut four = [0; 4];
    server.read_exact(&mut four).await.unwrap();
    assert!(sent.elapsed() >= ms(40));
    server.write_all(b"pong").await.unwrap();
    client.read_exact(&mut four).await.unwrap();
    assert_eq!(&four, b"pong");
    // A timer fires at a whole millisecond.
    assert!(sent.elapsed() >= ms(65) && sent.elapsed() <= ms(67));
}

#[tokio::test(start_paused = true)]
async fn bytes_keep_their_order_whatever_the_delays_are() {
    let rough = Delay::Pareto {
        min: ms(1),
        alpha: 1.1,
    };
    let (_relay, mut client, mut server) = pair(network(rough, rough)).await;
    let sent: Vec<u8> = (0..=u8::MAX).cycle().take(20_000).collect();
    let writes = async {
        for part in sent.chunks(100) {
            client.write_all(part).await.unwrap();
            tokio::time::sleep(ms(3)).await;
        }
        client.shutdown().await.unwrap();
    };
    let (received, ()) = tokio::join!(read_to_end(&mut server), writes);
    assert!(received == sent);
}

#[tokio::test(start_paused = true)]
async fn stalled_bytes_arrive_together_at_the_end_of_the_stall() {
    let stall = Delay::Stall {
        every: ms(5_000),
        length: ms(300),
    };
    let (_relay, mut client, mut server) = pair(network(stall, Delay::None)).await;
    let start = Instant::now();
    let writes = async {
        for _ in 0..10 {
            client.write_all(b"x").await.unwrap();
            tokio::time::sleep(ms(50)).await;
        }
    };
    let reads = async {
        let mut times = Vec::new();
        while times.len() < 10 {
            let read = server.read(&mut [0; 16]).await.unwrap();
            times.extend(std::iter::repeat_n(start.elapsed(), read));
        }
        times
    };
    tokio::time::sleep(ms(4_500)).await;
    let (times, ()) = tokio::join!(reads, writes);
    // Sent every 50 ms from 4.5 s on; the stall is from 4.7 to 5 s.
    let stalled = times.iter().filter(|at| **at >= ms(4_705));
    let (least, most) = (stalled.clone().min(), stalled.max());
    assert!(*least.unwrap() >= ms(4_999), "{times:?}");
    assert!(*most.unwrap() <= ms(5_002), "{times:?}");
    assert!(times[3] < ms(4_700), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn half_close_leaves_the_other_direction_open() {
    let slow = Delay::Constant(ms(30));
    let (relay, mut client, mut server) = pair(network(slow, slow)).await;
    client.write_all(b"all of it").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut server).await, b"all of it");
    server.write_all(b"an answer after the end").await.unwrap();
    drop(server);
    assert_eq!(read_to_end(&mut client).await, b"an answer after the end");
    all_closed(&relay).await;
}

#[tokio::test(start_paused = true)]
async fn reset_is_relayed_in_both_directions() {
    let slow = Delay::Constant(ms(30));
    let (relay, client, mut server) = pair(network(slow, slow)).await;
    let start = Instant::now();
    client.set_zero_linger().unwrap();
    drop(client);
    let error = server.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(start.elapsed() >= ms(30));
    all_closed(&relay).await;

    let (relay, mut client, server) = pair(network(slow, slow)).await;
    server.set_zero_linger().unwrap();
    drop(server);
    let error = client.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    all_closed(&relay).await;
}

#[tokio::test(start_paused = true)]
async fn bytes_for_a_closed_client_reset_the_server() {
    let (relay, client, mut server) = pair(Network::default()).await;
    drop(client);
    assert_eq!(read_to_end(&mut server).await, b"");
    let error = loop {
        match server.write_all(&[0; 4096]).await {
            Ok(()) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(
            error.kind(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        ),
        "{error}"
    );
    all_closed(&relay).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_to_a_closed_port_is_reset() {
    // The kernel never gives this port to a socket by itself.
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let relay = Relay::start(to, Network::default()).await.unwrap();
    let mut client = TcpStream::connect(relay.address()).await.unwrap();
    let error = client.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    all_closed(&relay).await;
    assert_eq!(relay.counts().accepted, 1);
}

#[tokio::test(start_paused = true)]
async fn connections_are_counted_from_their_accept_to_their_close() {
    let (listener, to) = listen().await;
    let relay = Relay::start(to, Network::default()).await.unwrap();
    let mut open = Vec::new();
    for _ in 0..3 {
        let client = TcpStream::connect(relay.address()).await.unwrap();
        open.push((client, listener.accept().await.unwrap()));
    }
    let counts = |accepted, open, peak| Counts {
        accepted,
        open,
        peak,
    };
    assert_eq!(relay.counts(), counts(3, 3, 3));
    open.clear();
    all_closed(&relay).await;
    let client = TcpStream::connect(relay.address()).await.unwrap();
    let server = listener.accept().await.unwrap();
    assert_eq!(relay.counts(), counts(4, 1, 3));
    drop((client, server));
}

#[tokio::test(start_paused = true)]
async fn dropped_relay_closes_its_delayed_connections() {
    let held = network(Delay::None, Delay::Constant(Delay::LONGEST));
    let (relay, mut client, mut server) = pair(held).await;
    server.write_all(b"too late").await.unwrap();
    drop(relay);
    assert_eq!(read_to_end(&mut client).await, b"");
    assert!(
        TcpStream::connect(client.peer_addr().unwrap())
            .await
            .is_err()
    );
}

#[tokio::test]
async fn seed_gives_each_connection_and_direction_its_own_delays() {
    let rough = Delay::LogNormal {
        median: ms(10),
        p99: ms(200),
    };
    let network = network(rough, rough);
    let start = Instant::now();
    let first = |network: Network, number| {
        let [mut there, mut back] = network.lines(start, number);
        [there.out_at(start), back.out_at(start)]
    };
    assert_eq!(first(network, 0), first(network, 0));
    let mut all = Vec::from_iter((0..100).flat_map(|number| first(network, number)));
    all.extend(first(Network { seed: 1, ..network }, 0));
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 202);
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error() {
    let (_listener, to) = listen().await;
    let network = Network {
        port: to.port(),
        ..Network::default()
    };
    let error = Relay::start(to, network).await.unwrap_err();
    assert!(error.to_string().contains("the relay's port"), "{error}");
}
