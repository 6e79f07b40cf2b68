//! Bodies that end early, stall, or block other calls, through the assembled client. The server
//! writes raw bytes, so that it can behave in any way.

use std::{num::NonZeroU32, time::Duration};

use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::{
    task::JoinHandle,
    time::{Instant, pause, resume, sleep},
};
use tower::ServiceExt;
use tower_tds::{
    Builder, Client, Credentials, Error, Kind, Limits, RequestBody, ResponseBody,
    layers::errors::{RetryLayer, Sent},
};

use crate::client::server::Server;

fn builder(server: &Server) -> Builder {
    let credentials = Credentials::new("id", "s3cr3t").expect("it can be sent");
    Client::builder(&server.url(), &server.url(), credentials).loopback_http()
}

fn built(builder: Builder) -> Client {
    builder.build().expect("loopback is let through")
}

type Outcome = Result<Response<ResponseBody>, Error>;

async fn get(client: &Client, url: String) -> Outcome {
    let request = Request::get(url).body(RequestBody::default());
    client.clone().oneshot(request.expect("a request")).await
}

/// The body of a response of these bytes, after which the server closes the connection.
async fn body_of(answer: &[u8]) -> ResponseBody {
    body_from(&Server::start(answer).await).await
}

async fn body_from(server: &Server) -> ResponseBody {
    let client = built(builder(server));
    let response = get(&client, format!("{}/close", server.url())).await;
    response.expect("the head of a success").into_body()
}

const LENGTH: &str = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";

#[tokio::test]
async fn truncated_body_error_has_received_and_announced_lengths() {
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    for (answer, received, came) in [
        (LENGTH, 4, " after 4 of 100 bytes"),
        (chunks, 4, " after 4 bytes"),
    ] {
        let server = Server::start(answer.as_bytes()).await;
        let body = body_from(&server).await;
        let error: Error = body.collect().await.expect_err("it breaks off");
        assert_eq!(error.kind(), Kind::Truncated, "{error:?}");
        assert_eq!(error.received(), Some(received));
        assert!(error.to_string().contains(came), "{error}");
        assert!(error.is_retryable(), "by its caller, who has the part");
        assert_eq!(server.seen(), ["POST", "t1"], "by nobody else");
    }
}

#[tokio::test]
async fn body_ended_by_connection_close_is_read_to_that_end() {
    let body = body_of(b"HTTP/1.1 200 OK\r\n\r\nhalf, or all").await;
    let body = body.collect().await.expect("nothing tells otherwise");
    assert_eq!(body.to_bytes(), "half, or all");
}

#[tokio::test]
async fn folded_header_line_becomes_a_space() {
    let answer = b"HTTP/1.1 200 OK\r\nx-note: folded\r\n\tonce\r\ncontent-length: 2\r\n\r\nok";
    let server = Server::start(answer).await;
    let response = get(&built(builder(&server)), server.url()).await;
    let response = response.expect("RFC 9112, section 5.2");
    let note = response.headers()["x-note"].to_str().expect("text");
    assert_eq!(
        note.split_whitespace().collect::<Vec<_>>(),
        ["folded", "once"]
    );
}

#[tokio::test]
async fn unrequested_upgrade_is_an_error() {
    let server = Server::start(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: other\r\n\r\n").await;
    let called = get(&built(builder(&server)), server.url()).await;
    let error = called.expect_err("2xx or 304");
    assert_eq!(error.kind(), Kind::UnexpectedAnswer);
}

#[tokio::test]
async fn empty_body_is_complete() {
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    for answer in ["HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", chunks] {
        let body = body_of(answer.as_bytes()).await;
        assert_eq!(body.collect().await.expect("whole").to_bytes(), "");
    }
}

#[tokio::test]
async fn silent_body_ends_at_the_read_timeout() {
    let server = Server::start(LENGTH.as_bytes()).await;
    for (client, limit) in [
        (built(builder(&server)), 30),
        (
            built(builder(&server).read_timeout(Duration::from_secs(90))),
            90,
        ),
    ] {
        let response = get(&client, format!("{}/hold", server.url())).await;
        let mut body = response.expect("the head of a success").into_body();
        let start = Instant::now();
        let frame = body.frame().await.expect("a part").expect("of it");
        assert_eq!(frame.into_data().expect("data"), "half");
        // From here on the time passes only in the stall.
        pause();
        let error = body.frame().await.expect("an end").expect_err("of silence");
        assert_eq!(error.kind(), Kind::Truncated, "{error:?}");
        assert_eq!(error.received(), Some(4));
        // The rest is what this machine took until the pause.
        let seconds = start.elapsed().as_secs();
        assert!((limit..limit + 10).contains(&seconds), "{seconds}");
        assert!(body.frame().await.is_none());
        resume();
        let free = client.limiter().snapshot();
        assert_eq!(free.in_flight, 0, "and its permit is free");
    }
}

/// A client of three data sockets that are all in use, and one more call.
async fn crowded(
    server: &Server,
    retry: RetryLayer,
) -> (Client, Vec<Response<ResponseBody>>, JoinHandle<Outcome>) {
    let connections = NonZeroU32::new(4).expect("four");
    let limits = Limits::default().connections(connections);
    let client = built(builder(server).limits(limits).retry(retry));
    let url = format!("{}/hold", server.url());
    let mut held = Vec::new();
    while held.len() < 3 {
        let response = get(&client, url.clone()).await;
        held.push(response.expect("the head of a success"));
    }
    let another = client.clone();
    let call = tokio::spawn(async move { get(&another, url).await });
    (client, held, call)
}

#[tokio::test]
async fn call_without_a_deadline_waits_for_a_download_to_end() {
    let server = Server::start(LENGTH.as_bytes()).await;
    let (client, mut held, call) =
        crowded(&server, RetryLayer::new().deadline(Duration::MAX)).await;
    pause();
    sleep(Duration::from_secs(600)).await;
    assert!(!call.is_finished());
    let now = client.limiter().snapshot();
    assert_eq!(
        (now.in_flight, now.waiting, now.connects_waiting),
        (3, 1, 0)
    );
    resume();
    held.pop();
    call.await.expect("no panic").expect("its turn");
    assert_eq!(server.seen(), ["POST", "t1", "t1", "t1", "t1"]);
}

#[tokio::test]
async fn deadline_error_names_unread_bodies_as_its_wait() {
    let server = Server::start(LENGTH.as_bytes()).await;
    let (client, held, call) = crowded(&server, RetryLayer::new()).await;
    pause();
    sleep(Duration::from_secs(121)).await;
    let error = call.await.expect("no panic").expect_err("its deadline");
    assert_eq!((error.kind(), error.sent()), (Kind::Timeout, Sent::Never));
    let waited = error.waited_for().expect("it waited");
    assert!(waited.contains("another response body to end"), "{error}");
    assert_eq!(client.limiter().snapshot().waiting, 0);
    assert_eq!((server.seen().len(), held.len()), (4, 3));
}
