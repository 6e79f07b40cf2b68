//! The same failures as reqwest reports them.

use std::time::Duration;

use http::StatusCode;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};
use tokio::net::TcpListener;
use tower::BoxError;
use tower_tds_errors::{Error, Kind, Sent};

use crate::server::{Act, Server};

struct Nobody;

impl Resolve for Nobody {
    fn resolve(&self, _: Name) -> Resolving {
        Box::pin(std::future::ready(Err::<Addrs, BoxError>("nobody".into())))
    }
}

fn builder() -> ClientBuilder {
    Client::builder().no_proxy()
}

/// What the call, the status or the body fails with.
async fn failed(client: ClientBuilder, uri: &str) -> Error {
    let client = client.build().unwrap();
    let fetched = async {
        let response = client.get(uri).send().await?.error_for_status()?;
        response.bytes().await
    };
    let error = Error::from(BoxError::from(fetched.await.unwrap_err()));
    let shown = format!("{error} {error:?} {error:#?}");
    assert!(!shown.contains("CANARY"), "{shown}");
    error
}

async fn fails(act: Act) -> Error {
    let server = Server::start(act).await;
    failed(builder(), &format!("{}?key=CANARY", server.uri())).await
}

#[tokio::test]
async fn what_never_left_is_told_from_what_may_have_arrived() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = format!("http://{}/", gone.local_addr().unwrap());
    drop(gone);
    let nobody = builder().dns_resolver(Nobody);
    for (error, kind, sent) in [
        (
            failed(builder(), &refused).await,
            Kind::Connect,
            Sent::Never,
        ),
        (
            failed(nobody, "http://api.example/").await,
            Kind::Connect,
            Sent::Never,
        ),
        (
            failed(builder(), "no uri").await,
            Kind::InvalidRequest,
            Sent::Never,
        ),
        (
            fails(Act::WriteAndReset(Vec::new())).await,
            Kind::Reset,
            Sent::Unknown,
        ),
        (
            fails(Act::WriteAndClose(Vec::new())).await,
            Kind::Reset,
            Sent::Unknown,
        ),
        (
            fails(Act::Write("junk\r\n\r\n".into())).await,
            Kind::Malformed,
            Sent::Unknown,
        ),
    ] {
        assert_eq!((error.kind(), error.sent()), (kind, sent));
    }
}

#[tokio::test]
async fn a_body_that_ends_early_is_never_a_broken_coding() {
    let part = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart".to_vec();
    let closed = fails(Act::WriteAndClose(part.clone())).await;
    let reset = fails(Act::WriteAndReset(part)).await;
    assert_eq!(
        (closed.kind(), reset.kind()),
        (Kind::Truncated, Kind::Truncated)
    );
}

#[tokio::test(start_paused = true)]
async fn a_timeout_says_what_took_too_long() {
    let silent = Server::start(Act::WriteAndHold(Vec::new())).await;
    let part = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart".to_vec();
    let stalls = Server::start(Act::WriteAndHold(part)).await;
    let limit = Duration::from_secs(1);
    let head = failed(builder().timeout(limit), &silent.uri()).await;
    assert_eq!((head.kind(), head.sent()), (Kind::Timeout, Sent::Unknown));
    // The clock stands still until the body is waited for.
    tokio::time::resume();
    let limit = Duration::from_millis(200);
    let body = failed(builder().read_timeout(limit), &stalls.uri()).await;
    assert_eq!((body.kind(), body.sent()), (Kind::Truncated, Sent::Unknown));
}

#[tokio::test]
async fn a_status_and_a_redirect_without_end_keep_their_meaning() {
    for (status, kind) in [
        (StatusCode::TOO_MANY_REQUESTS, Kind::Throttled),
        (StatusCode::LOCKED, Kind::RateExceeded),
        (StatusCode::BAD_GATEWAY, Kind::Unavailable),
    ] {
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(fails(Act::Write(answer.into())).await.kind(), kind);
    }
    let round = b"HTTP/1.1 302 Found\r\nlocation: /v2/rail\r\ncontent-length: 0\r\n\r\n";
    let server = Server::start(Act::Write(round.to_vec())).await;
    let limited = builder().redirect(Policy::limited(3));
    let error = failed(limited, &server.uri()).await;
    assert_eq!(error.kind(), Kind::UnexpectedAnswer);
}
