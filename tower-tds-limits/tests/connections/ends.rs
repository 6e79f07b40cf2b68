//! Servers that end their side first and read on (RFC 9112, section 9.6). They count a connection
//! until they have seen the client's end.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::sleep,
};
use tower::{Layer, ServiceExt};
use tower_tds_limits::{ConnectionLimitLayer, LimitedIo, Limiter};

use crate::connections::{
    client, get, limited, limiter,
    listen::{Accepted, listen},
    server::BODY,
};

/// When the server ends its side.
#[derive(Debug, Clone, Copy)]
enum Ends {
    AfterItsResponse,
    /// This long after the accept.
    After(Duration),
}

/// Starts a server that sees each end of a client [`LATE`].
async fn start(ends: Ends) -> (SocketAddr, Arc<Accepted>) {
    listen(move |mut socket| async move {
        serve(&mut socket, ends).await;
        // A client that resets has ended as well.
        socket.read_to_end(&mut Vec::new()).await.ok();
        sleep(LATE).await;
        socket
    })
    .await
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
    let (address, accepted) = start(Ends::AfterItsResponse).await;
    let limiter = limiter(data);
    let service = limited(&limiter, client(&limiter));
    let mut calls = JoinSet::new();
    for _ in 0..3 * data {
        calls.spawn(get(service.clone(), uri(address)));
    }
    for body in calls.join_all().await {
        assert_eq!(body.expect("every call is answered"), BODY);
    }
    assert_eq!(accepted.all(), 3 * data);
    accepted.most()
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

pub(crate) async fn connect(
    limiter: &Limiter,
    address: SocketAddr,
) -> TokioIo<LimitedIo<TokioIo<TcpStream>>> {
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(HttpConnector::new());
    let socket = connector.oneshot(uri(address)).await;
    TokioIo::new(socket.expect("it listens"))
}

/// Both sides end a connection at about the same time, over and over.
#[tokio::test]
async fn crossing_ends_stay_within_the_limit() {
    let ends = Duration::from_millis(20);
    let mut rng = fastrand::Rng::with_seed(7);
    let (address, accepted) = start(Ends::After(ends)).await;
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
    assert_eq!((accepted.most(), accepted.all()), (4, 16));
}

/// Within the second that a segment takes at most.
const LATE: Duration = Duration::from_millis(400);
