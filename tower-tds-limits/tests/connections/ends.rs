//! Servers that end their side first and read on (RFC 9112, section 9.6). They count a connection
//! until they have seen the client's end.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use http::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};
use tower::{Layer, ServiceExt};
use tower_tds_limits::{ConnectionLimitLayer, LimitedIo, Limiter};

use crate::connections::{client, get, limited, limiter, server::BODY};

/// When the server ends its side.
#[derive(Debug, Clone, Copy)]
enum Ends {
    AfterItsResponse,
    /// This long after the accept.
    After(Duration),
}

/// Connections from the accept until the client's end has come.
#[derive(Debug, Default)]
struct Counts {
    open: AtomicU32,
    most: AtomicU32,
    all: AtomicU32,
}

/// Starts a server that sees each end of a client `late`.
async fn start(ends: Ends, late: Duration) -> (SocketAddr, Arc<Counts>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let counts = Arc::<Counts>::default();
    let counted = Arc::clone(&counts);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.expect("loopback accepts");
            let open = counted.open.fetch_add(1, SeqCst) + 1;
            counted.most.fetch_max(open, SeqCst);
            counted.all.fetch_add(1, SeqCst);
            let counts = Arc::clone(&counted);
            tokio::spawn(async move {
                serve(&mut socket, ends).await;
                // A client that resets has ended as well.
                socket.read_to_end(&mut Vec::new()).await.ok();
                sleep(late).await;
                counts.open.fetch_sub(1, SeqCst);
            });
        }
    });
    (address, counts)
}

async fn serve(socket: &mut TcpStream, ends: Ends) {
    match ends {
        Ends::AfterItsResponse => {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                socket.read_buf(&mut head).await.expect("a request");
            }
            let length = BODY.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{BODY}"
            );
            let wrote = socket.write_all(answer.as_bytes()).await;
            wrote.expect("an open socket");
        }
        Ends::After(time) => sleep(time).await,
    }
    socket.shutdown().await.expect("an open socket");
}

fn uri(address: SocketAddr) -> Uri {
    format!("http://{address}/").parse().expect("a URI")
}

/// Makes three calls for each of this many data connections, all at once. Returns the most
/// connections that the server counted.
async fn most_of_three_rounds(data: u32) -> u32 {
    // `LATE` is within the second that a segment takes at most.
    let (address, counts) = start(Ends::AfterItsResponse, LATE).await;
    let limiter = limiter(data);
    let service = limited(&limiter, client(&limiter));
    let mut calls = JoinSet::new();
    for _ in 0..3 * data {
        calls.spawn(get(service.clone(), uri(address)));
    }
    for body in calls.join_all().await {
        assert_eq!(body.expect("every call is answered"), BODY);
    }
    assert_eq!(counts.all.load(SeqCst), 3 * data);
    counts.most.load(SeqCst)
}

#[tokio::test]
async fn server_that_closes_first_and_reads_on_counts_no_more_than_the_limit() {
    // Data connections of the limits 60, 6, 4 and 1.
    let seen = tokio::join!(
        most_of_three_rounds(59),
        most_of_three_rounds(5),
        most_of_three_rounds(3),
        most_of_three_rounds(1),
    );
    assert_eq!(seen, (59, 5, 3, 1));
}

async fn connect(limiter: &Limiter, address: SocketAddr) -> TokioIo<LimitedIo<TokioIo<TcpStream>>> {
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(HttpConnector::new());
    let socket = connector.oneshot(uri(address)).await;
    TokioIo::new(socket.expect("it listens"))
}

/// Both sides end a connection at about the same time, over and over.
#[tokio::test]
async fn crossing_ends_stay_within_the_limit() {
    let ends = Duration::from_millis(20);
    let mut rng = fastrand::Rng::with_seed(7);
    let (address, counts) = start(Ends::After(ends), LATE).await;
    let limiter = limiter(4);
    let mut lanes = JoinSet::new();
    for _ in 0..8 {
        let (limiter, mut rng) = (limiter.clone(), rng.fork());
        lanes.spawn(async move {
            for _ in 0..2 {
                let socket = connect(&limiter, address).await;
                sleep(ends.mul_f64(0.5 + rng.f64())).await;
                drop(socket);
            }
        });
    }
    lanes.join_all().await;
    assert_eq!((counts.most.load(SeqCst), counts.all.load(SeqCst)), (4, 16));
}

const LATE: Duration = Duration::from_millis(400);
