//! A server that resets instead of closing. The clock is paused, so no test waits for a
//! timeout.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::yield_now,
    time::Instant,
};
use tower::{Layer, ServiceExt};
use tower_tds_limits::{ConnectionLimitLayer, LimitedIo, Limiter};

use crate::connections::{client, limiter};

async fn listen() -> (TcpListener, Uri) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (
        listener,
        format!("http://{address}/").parse().expect("a URI"),
    )
}

/// Returns a client's socket, and the server's, which has not read the one byte that was sent.
async fn open(limiter: &Limiter) -> (TokioIo<LimitedIo<TokioIo<TcpStream>>>, TcpStream) {
    let (listener, uri) = listen().await;
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(HttpConnector::new());
    let (socket, accepted) = tokio::join!(connector.oneshot(uri), listener.accept());
    let mut socket = TokioIo::new(socket.expect("it listens"));
    let (server, _) = accepted.expect("loopback accepts");
    socket.write_u8(b'?').await.expect("an open socket");
    server.peek(&mut [0]).await.expect("the byte");
    (socket, server)
}

/// Lets all tasks run without moving the clock, then returns the number of connections.
async fn connections_after_a_while(limiter: &Limiter) -> u32 {
    let before = Instant::now();
    for _ in 0..10_000 {
        yield_now().await;
    }
    assert_eq!(before.elapsed().as_nanos(), 0);
    limiter.snapshot().connections
}

#[tokio::test(start_paused = true)]
async fn a_reset_after_our_close_returns_the_permit() {
    let limiter = limiter(1);
    let (socket, server) = open(&limiter).await;
    drop(socket);
    assert_eq!(connections_after_a_while(&limiter).await, 1);
    // A close with a byte unread is a reset (RFC 1122, section 4.2.2.13).
    drop(server);
    connections_after_a_while(&limiter).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(connections_after_a_while(&limiter).await, 0);
}

#[tokio::test(start_paused = true)]
async fn cancelled_download_ends_the_transfer_early() {
    let limiter = limiter(1);
    let (listener, uri) = listen().await;
    // The server goes on sending, as a file server does.
    let serving = tokio::spawn(async move {
        let (mut server, _) = listener.accept().await.expect("loopback accepts");
        server.read_buf(&mut Vec::new()).await.expect("a request");
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n";
        server.write_all(head).await.expect("an open socket");
        let mut sent = 0;
        while sent < FAR_TOO_MUCH
            && let Ok(more) = server.write(&[0; 64 * 1024]).await
        {
            sent += more;
        }
        sent
    });
    let request = Request::get(uri).body(Empty::<Bytes>::new());
    let response = client(&limiter).oneshot(request.expect("a request")).await;
    let mut body = response.expect("a head").into_body();
    drop(body.frame().await.expect("a piece").expect("a piece"));
    drop(body);
    while !serving.is_finished() {
        yield_now().await;
    }
    assert!(serving.await.expect("no panic") < FAR_TOO_MUCH);
    assert_eq!(
        connections_after_a_while(&limiter).await,
        1,
        "nothing says that the server has seen it"
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(limiter.snapshot().connections, 0);
}

/// Number of bytes that the buffers of both ends cannot hold.
const FAR_TOO_MUCH: usize = 64 * 1024 * 1024;
