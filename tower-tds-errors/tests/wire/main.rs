//! Transport failures and connections, over sockets of this machine.
#![expect(clippy::unwrap_used, reason = "a test that panics fails")]

mod bodies;
mod corpus;
mod http2;
mod reqwest;
mod server;
mod transport;

use std::num::NonZeroU32;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use server::{Act, Server};
use tower::{Layer, ServiceExt};
use tower_tds_errors::{Attempt, ClassifyLayer, Error, GiveUp, Kind, RetryLayer};

fn get(uri: &str) -> Request<Full<Bytes>> {
    Request::get(uri).body(Full::default()).unwrap()
}

async fn fails(act: Act) -> (Error, Server) {
    let server = Server::start(act).await;
    let service = ClassifyLayer::new().layer(server::client());
    let error = service.oneshot(get(&server.uri())).await.unwrap_err();
    once(&error);
    (error, server)
}

/// Checks the whole chain: the line, which has the root cause, each cause once, and no secret.
/// Returns the root cause.
fn once(error: &Error) -> String {
    let first: &(dyn std::error::Error + 'static) = error;
    let chain = std::iter::successors(Some(first), |error| error.source());
    let told: Vec<_> = chain.map(ToString::to_string).collect();
    let root = told.last().cloned().unwrap_or_default();
    assert!(
        error.status().is_some() || told[0].contains(&root),
        "{told:?}"
    );
    for (at, text) in told.iter().enumerate() {
        assert!(!text.contains("CANARY"), "{told:?}");
        let others = told
            .iter()
            .enumerate()
            .skip(1)
            .filter(|(other, _)| *other != at);
        for (_, other) in others {
            assert!(!other.contains(text.as_str()), "{told:?}");
        }
    }
    root
}

/// The connections that thirty refused requests take.
async fn thirty(answer: impl Into<Vec<u8>>) -> usize {
    let server = Server::start(Act::Write(answer.into())).await;
    let service = ClassifyLayer::new().layer(server::client());
    for _ in 0..30 {
        let call = service.clone().oneshot(get(&server.uri()));
        assert_eq!(call.await.unwrap_err().kind(), Kind::Throttled);
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
    // At the bound the connection is still reused.
    let most = format!(
        "HTTP/1.1 429 \r\ncontent-length: 16384\r\n\r\n{}",
        "x".repeat(16384)
    );
    assert_eq!(thirty(most).await, 1);
}

const BROTLI: &[u8] = b"\x03\x12\x80{\"message\":\"API rate limit exceeded\"}\x03";

#[tokio::test]
async fn head_response_is_classified_without_waiting_for_a_body() {
    let answer = b"HTTP/1.1 429 \r\ncontent-length: 50\r\n\r\n".to_vec();
    let server = Server::start(Act::Write(answer)).await;
    let service = ClassifyLayer::new().layer(server::client());
    for _ in 0..10 {
        let request = Request::head(server.uri()).body(Full::default()).unwrap();
        let error = service.clone().oneshot(request).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Throttled);
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn endless_error_body_is_cut_at_16_kib() {
    let head = "HTTP/1.1 503 \r\nretry-after: 2\r\n\r\n{\"message\":\"flood\",";
    let (error, served) = fails(Act::Flood(head.into())).await;
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(error.body().len(), 16384);
    assert_eq!(error.retry_after().map(|wait| wait.as_secs()), Some(2));
    assert!(
        error
            .message()
            .is_some_and(|message| message.chars().count() <= 200)
    );
    assert_eq!(served.requests(), 1);
}

#[tokio::test]
async fn get_is_retried_after_its_idle_connection_was_closed() {
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec();
    let server = Server::start(Act::WriteOnce(answer)).await;
    let stack = RetryLayer::new()
        .attempts(NonZeroU32::MIN.saturating_add(1))
        .layer(ClassifyLayer::new().layer(server::client()));
    // Each request but the first reuses the connection of the previous one.
    for calls in 1..=5 {
        let response = stack.clone().oneshot(get(&server.uri())).await.unwrap();
        let attempt = Attempt::of(response.extensions());
        assert_eq!(attempt, if calls > 1 { 2 } else { 1 });
        assert_eq!(response.collect().await.unwrap().to_bytes(), "ok");
        assert_eq!(server.connections(), calls);
        assert_eq!(server.requests(), 2 * calls - 1);
    }
    // The server had read the request, so a POST is not sent again.
    let request = Request::post(server.uri()).body(Full::default()).unwrap();
    let error = stack.oneshot(request).await.unwrap_err();
    assert_eq!(error.gave_up(), Some(GiveUp::NotIdempotent));
    assert_eq!((server.connections(), server.requests()), (5, 10));
}
