//! HTTP/2 frames by which a server ends a stream: each of them counts as a reset.

use std::net::SocketAddr;

use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::{BoxError, Layer, ServiceExt};
use tower_tds_errors::{ClassifyLayer, Error, Kind, Sent};

use crate::get;

/// A frame (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    let head = [0, 0, length, kind, flags, 0, 0, 0, stream];
    [&head[..], payload].concat()
}

const SETTINGS: u8 = 4;
const HEADERS: u8 = 1;
const DATA: u8 = 0;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;

/// Answers the first request by these frames, and closes.
async fn server(answer: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await.unwrap();
        read_request(&mut stream).await;
        stream.write_all(&answer).await.unwrap();
        stream.shutdown().await.unwrap();
        while stream.read_u8().await.is_ok() {}
    });
    address
}

async fn read_request(stream: &mut TcpStream) {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.unwrap();
        if head[3] == HEADERS {
            return;
        }
    }
}

/// The error of the call, or else that of the body.
async fn fails(answer: Vec<u8>) -> Error {
    let address = server(answer).await;
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let service = ClassifyLayer::new().layer(client);
    match service.oneshot(get(&format!("http://{address}/"))).await {
        Err(error) => error,
        Ok(response) => Error::from(BoxError::from(response.collect().await.unwrap_err())),
    }
}

#[tokio::test]
async fn http2_reset_or_goaway_may_have_been_sent() {
    let refused = frame(RST_STREAM, 0, 1, &[0, 0, 0, 7]);
    let cancelled = frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]);
    let in_peace = frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0]);
    let in_anger = frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 11]);
    for answer in [refused, cancelled, in_peace, in_anger] {
        let error = fails(answer).await;
        assert_eq!((error.kind(), error.sent()), (Kind::Reset, Sent::Unknown));
        assert!(error.is_retryable());
    }
}

#[tokio::test]
async fn http2_body_that_closes_or_resets_is_truncated() {
    // `:status: 200` of the static table, and END_HEADERS.
    let head = frame(HEADERS, 4, 1, &[0x88]);
    let part = [head, frame(DATA, 0, 1, b"part")].concat();
    let reset = [part.clone(), frame(RST_STREAM, 0, 1, &[0, 0, 0, 2])].concat();
    assert_eq!(fails(reset).await.kind(), Kind::Truncated);
    let closed = fails(part).await;
    assert_eq!(closed.kind(), Kind::Truncated, "the connection closes");
}
