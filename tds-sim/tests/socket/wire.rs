//! Faults as bytes on a socket, read without an HTTP library, which would hide them.

use std::io::ErrorKind;

use tds_sim::Outcome;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::client::World;

/// Answer to a raw GET, and the end of its connection.
struct Raw {
    bytes: Vec<u8>,
    end: Result<(), ErrorKind>,
}

impl Raw {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    fn body_length(&self) -> usize {
        let head = self.bytes.windows(4).position(|four| four == b"\r\n\r\n");
        self.bytes.len() - head.expect("a head") - 4
    }
}

async fn serve(fault: &str) -> World {
    let fault = fault.parse().unwrap();
    World::with(|config| config.faults.data.push(fault)).await
}

async fn open(url: &str) -> TcpStream {
    TcpStream::connect(url.strip_prefix("http://").unwrap())
        .await
        .unwrap()
}

/// Reads until the connection ends, or until this many bytes have come.
async fn read(stream: &mut TcpStream, most: usize) -> Raw {
    let mut raw = Raw {
        bytes: Vec::new(),
        end: Ok(()),
    };
    while raw.bytes.len() < most {
        match stream.read_buf(&mut raw.bytes).await {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                raw.end = Err(error.kind());
                break;
            }
        }
    }
    raw
}

async fn get(world: &World, path: &str, most: usize) -> Raw {
    let (mut stream, token) = (open(world.server.base_url()).await, &world.token);
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    read(&mut stream, most).await
}

#[tokio::test]
async fn reset_head_fault_sends_only_a_tcp_reset() {
    let world = serve("reset-head").await;
    let raw = get(&world, "/v1/live/a", usize::MAX).await;
    assert_eq!(
        (raw.bytes.len(), raw.end),
        (0, Err(ErrorKind::ConnectionReset))
    );
    let summary = world.server.ledger().summary();
    assert_eq!((summary.data_calls, summary.aborted), (1, 1));
    assert_eq!(world.server.ledger().arrivals()[0].status, None);
    assert_eq!(
        summary.sockets_open, 0,
        "a socket that breaks is closed too"
    );
}

#[tokio::test]
async fn reset_body_fault_resets_after_half_of_the_body() {
    let world = serve("reset-body").await;
    let raw = get(&world, "/v1/history/a?bytes=10000", usize::MAX).await;
    assert!(raw.text().starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(
        (raw.body_length(), raw.end),
        (5_000, Err(ErrorKind::ConnectionReset))
    );
    let arrivals = world.server.ledger().arrivals();
    assert_eq!(
        (arrivals[0].status, arrivals[0].outcome),
        (Some(200), Outcome::Aborted)
    );
    let path = "/v1/history/a?bytes=10000&framing=chunked";
    let raw = get(&world, path, usize::MAX).await;
    assert_eq!(raw.end, Err(ErrorKind::ConnectionReset), "without a length");
}

#[tokio::test]
async fn a_truncated_body_ends_early_with_or_without_a_length() {
    let world = serve("truncate").await;
    let raw = get(&world, "/v1/history/a?bytes=10000", usize::MAX).await;
    assert!(raw.text().contains("content-length: 10000\r\n"));
    assert_eq!((raw.body_length(), raw.end), (5_000, Ok(())));

    let path = "/v1/history/a?bytes=10000&framing=chunked";
    let raw = get(&world, path, usize::MAX).await;
    assert!(raw.text().contains("transfer-encoding: chunked\r\n"));
    assert!(!raw.bytes.ends_with(b"0\r\n\r\n"), "no last chunk");
    assert_eq!(raw.end, Ok(()));
}

#[tokio::test]
async fn garbage_is_not_http() {
    let world = serve("garbage").await;
    let raw = get(&world, "/v1/live/a", usize::MAX).await;
    assert!(raw.text().contains("this is not HTTP"));
    assert!(!raw.text().contains("HTTP/1.1"));
}

#[tokio::test]
async fn endless_fault_sends_a_body_without_a_length() {
    let world = serve("endless").await;
    let raw = get(&world, "/v1/live/a", 300_000).await;
    assert!(raw.bytes.len() >= 300_000 && raw.end.is_ok());
    assert!(!raw.text().contains("content-length"));
}

#[tokio::test]
async fn dripped_body_arrives_complete() {
    let world = serve("drip:1ms").await;
    let raw = get(&world, "/v1/history/a?bytes=64", usize::MAX).await;
    assert_eq!((raw.body_length(), raw.end), (64, Ok(())));
    assert_eq!(world.server.ledger().summary().complete, 1);
}

#[tokio::test]
async fn token_endpoint_that_is_down_closes_without_a_response() {
    let down = "down".parse().unwrap();
    let world = World::with(|config| config.faults.token.push(down)).await;
    let mut stream = open(world.server.auth_url()).await;
    let request = "POST /auth/realms/ServiceConnect/protocol/openid-connect/token HTTP/1.1\r\n\
                   host: a\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let raw = read(&mut stream, usize::MAX).await;
    assert_eq!((raw.bytes.len(), raw.end), (0, Ok(())));
    assert_eq!(world.server.ledger().summary().token_posts, 1);
}

#[tokio::test]
async fn client_disconnect_within_a_body_is_recorded_as_aborted() {
    let world = World::new().await;
    let path = "/v1/history/a?bytes=100000000";
    drop(get(&world, path, 1_000).await);
    // The server detects it at its next write. Until then the call is in progress.
    while world.server.ledger().summary().in_progress > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        world.server.ledger().arrivals()[0].outcome,
        Outcome::Aborted
    );
}
