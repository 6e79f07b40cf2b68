//! Transport failures and connections, over sockets of this machine.
#![expect(clippy::unwrap_used, reason = "a test that panics fails")]

#[path = "wire/corpus.rs"]
mod corpus;
#[path = "wire/server.rs"]
mod server;

use std::io::{self, ErrorKind, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use server::{Act, Server};
use tokio::net::{TcpListener, TcpStream};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt};
use tower_http::decompression::DecompressionLayer;
use tower_tds_errors::{ClassifyLayer, Error, Kind, RetryLayer, Sent, Stop};

fn get(uri: &str) -> Request<Full<Bytes>> {
    Request::get(uri).body(Full::default()).unwrap()
}

async fn fails(act: Act) -> (Error, Server) {
    let server = Server::start(act).await;
    let service = ClassifyLayer::new().layer(server::client());
    let error = service.oneshot(get(&server.uri())).await.unwrap_err();
    (error, server)
}

async fn thirty(answer: impl Into<Vec<u8>>) -> usize {
    thirty_over(server::client(), answer.into()).await
}

/// The connections that thirty refused requests take.
async fn thirty_over<S, B>(client: S, answer: Vec<u8>) -> usize
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body,
{
    let server = Server::start(Act::Write(answer)).await;
    let service = ClassifyLayer::new().layer(client);
    for _ in 0..30 {
        let error = service
            .clone()
            .oneshot(get(&server.uri()))
            .await
            .map(drop)
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Throttled);
    }
    assert_eq!(server.requests(), 30);
    server.connections()
}

#[tokio::test]
async fn thirty_small_errors_use_one_connection() {
    for answer in [
        "HTTP/1.1 429 \r\ncontent-length: 2\r\n\r\nno",
        "HTTP/1.1 429 \r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
        "HTTP/1.1 429 \r\ncontent-length: 0\r\n\r\n",
    ] {
        assert_eq!(thirty(answer).await, 1, "{answer:?}");
    }
    // At the bound it is still worth it.
    let most = format!(
        "HTTP/1.1 429 \r\ncontent-length: 16384\r\n\r\n{}",
        "x".repeat(16384)
    );
    assert_eq!(thirty(most).await, 1);
}

/// 16 KiB and less on the wire, 16 MiB when undone.
fn bomb() -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![b'x'; 16 * 1024 * 1024]).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn thirty_compressed_errors_and_bombs_use_one_connection() {
    for body in [
        include_bytes!("../src/classify/decode/tests/message.br").to_vec(),
        bomb(),
    ] {
        let coding = if body.starts_with(b"\x1f") {
            "gzip"
        } else {
            "br"
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 429 \r\ncontent-encoding: {coding}\r\ncontent-length: {length}\r\n\r\n"
        );
        let answer = [head.into_bytes(), body].concat();
        assert_eq!(thirty(answer.clone()).await, 1, "{coding}");
        // A layer below may undo it too. In the bomb it meets the bound, and may close.
        let below = DecompressionLayer::new().layer(server::client());
        let connections = thirty_over(below, answer).await;
        assert!(connections == 1 || coding == "gzip", "{connections}");
    }
}

#[tokio::test]
async fn an_endless_body_is_cut_off_and_its_connection_closed() {
    let head = "HTTP/1.1 503 \r\nretry-after: 2\r\n\r\n{\"message\":\"flood\",";
    let (error, served) = fails(Act::Flood(head.into())).await;
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(error.retry_after().map(|wait| wait.as_secs()), Some(2));
    assert!(
        error
            .message()
            .is_some_and(|message| message.chars().count() <= 200)
    );
    assert_eq!(served.requests(), 1);
}

#[tokio::test]
async fn a_reset_before_the_head_may_have_been_sent() {
    let (error, _) = fails(Act::Reset).await;
    assert_eq!((error.kind(), error.sent()), (Kind::Reset, Sent::Unknown));
    assert_eq!(error.method(), Some(&Method::GET));
}

#[tokio::test]
async fn a_close_before_the_head_may_have_been_sent() {
    for part in ["", "HTTP/1.1 200 OK\r\nconte"] {
        let (error, _) = fails(Act::WriteAndClose(part.into())).await;
        assert_eq!(
            (error.kind(), error.sent()),
            (Kind::Incomplete, Sent::Unknown),
            "{part:?}"
        );
    }
}

#[tokio::test]
async fn what_is_no_http_is_malformed_and_fatal() {
    let (error, _) = fails(Act::Write("SSH-2.0-OpenSSH_9.9\r\n\r\n".into())).await;
    assert_eq!(error.kind(), Kind::Malformed);
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_refused_connection_was_never_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/v2?key=CANARY", listener.local_addr().unwrap());
    drop(listener);
    let service = ClassifyLayer::new().layer(server::client());
    let error = service.oneshot(get(&uri)).await.unwrap_err();
    assert_eq!((error.kind(), error.sent()), (Kind::Connect, Sent::Never));
    assert!(error.is_connect() && error.is_retryable());
    assert!(!format!("{error} {error:?}").contains("CANARY"));
}

#[tokio::test]
async fn a_request_that_hyper_refuses_is_fatal() {
    let service = ClassifyLayer::new().layer(server::client());
    let relative = service.clone().oneshot(get("/v2")).await.unwrap_err();
    assert_eq!(relative.kind(), Kind::InvalidRequest);
}

#[tokio::test]
async fn a_failing_connector_is_named_by_the_types_in_its_chain() {
    for (kind, expected) in [
        (ErrorKind::InvalidData, Kind::Tls),
        (ErrorKind::TimedOut, Kind::ConnectTimeout),
        (ErrorKind::ConnectionReset, Kind::Connect),
        (ErrorKind::UnexpectedEof, Kind::Connect),
        (ErrorKind::NetworkUnreachable, Kind::Connect),
        (ErrorKind::Other, Kind::Connect),
    ] {
        let connector = tower::service_fn(move |_: http::Uri| {
            let error = io::Error::new(kind, BoxError::from("no"));
            std::future::ready(Err::<TokioIo<TcpStream>, _>(error))
        });
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let service = ClassifyLayer::new().layer(client);
        let error = service
            .oneshot(get("http://127.0.0.1:1/"))
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.sent()),
            (expected, Sent::Never),
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn a_success_whose_body_ends_early_is_told_by_its_error() {
    let part = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart";
    let server = Server::start(Act::WriteAndClose(part.into())).await;
    let service = ClassifyLayer::new().layer(server::client());
    let response = service.oneshot(get(&server.uri())).await.unwrap();
    let error = Error::from(BoxError::from(response.collect().await.unwrap_err()));
    assert_eq!(error.kind(), Kind::Truncated);
}

#[tokio::test]
async fn a_request_with_effects_that_met_a_reset_is_not_sent_again() {
    let server = Server::start(Act::Reset).await;
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new())
        .layer(ClassifyLayer::new())
        .service(server::client());
    let request = Request::post(server.uri()).body(Full::default()).unwrap();
    let error = stack.oneshot(request).await.unwrap_err();
    assert_eq!(error.stopped_because(), Some(Stop::NotIdempotent));
    assert_eq!(server.requests(), 1);
}
