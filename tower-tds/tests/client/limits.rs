//! Errors of calls that the limits ended before they were sent.

use std::{future::pending, num::NonZeroU32, time::Duration};

use http::Request;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::{
    io::AsyncWriteExt,
    net::TcpListener,
    time::{pause, resume, sleep},
};
use tower::ServiceExt;
use tower_tds::{
    Client, Credentials, Error, Kind, Limits, RequestBody, ResponseBody,
    layers::{
        errors::{RetryLayer, Sent},
        outcome,
    },
};

use crate::client::server::{self, Server};

fn client(server: &Server, url: &str, limits: Limits) -> Client {
    let credentials = Credentials::new("id", "s3cr3t").expect("it can be sent");
    Client::builder(&server.url(), url, credentials)
        .loopback_http()
        .limits(limits)
        .retry(RetryLayer::new().attempts(NonZeroU32::MIN))
        .build()
        .expect("loopback is let through")
}

async fn get(client: &Client, url: &str) -> Result<ResponseBody, Error> {
    let request = Request::get(url).body(RequestBody::default());
    let called = client.clone().oneshot(request.expect("a request")).await;
    called.map(http::Response::into_body)
}

#[tokio::test]
async fn exhausted_quota_fails_later_calls_without_a_request() {
    for wait in ["7200", "90"] {
        let answer = format!(
            "HTTP/1.1 429 Too Many Requests\r\nretry-after: {wait}\r\ncontent-length: 0\r\n\r\n"
        );
        let server = Server::start(answer.as_bytes()).await;
        let client = client(&server, &server.url(), Limits::default());
        for _ in 0..3 {
            let called = get(&client, &server.url()).await;
            let error = called.map(drop).expect_err("it is used up");
            assert_eq!(error.kind(), Kind::QuotaExhausted);
            let left = error.retry_after().expect("it is known");
            assert!(left > Duration::from_secs(60), "{left:?}");
        }
        assert_eq!(server.seen(), ["POST", "t1"], "it is asked once");
    }
}

#[tokio::test]
async fn call_without_a_socket_in_time_was_not_sent() {
    let server = Server::start(b"").await;
    let data = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", data.local_addr().expect("an address"));
    // The server never closes: the only data socket counts for 30 s after its call was cancelled.
    tokio::spawn(async move {
        let (mut socket, _) = data.accept().await.expect("a socket");
        server::read(&mut socket).await.expect("a call");
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n";
        socket.write_all(head).await.expect("the client reads");
        pending::<()>().await;
    });
    let two = NonZeroU32::MIN.saturating_add(1);
    let client = client(&server, &url, Limits::default().connections(two));
    drop(get(&client, &url).await.expect("the head of a success"));
    pause();
    let call = client.get(&url).deadline(Duration::from_secs(5));
    let error = call.await.map(drop).expect_err("there is no socket");
    assert_eq!((error.kind(), error.sent()), (Kind::Timeout, Sent::Never));
    let chain: Vec<_> = outcome::chain(&error).map(ToString::to_string).collect();
    let limit = "waiting for a connection; request not sent";
    assert!(chain.iter().any(|link| link.contains(limit)), "{chain:?}");
}

/// How a server ends the connection of a request.
#[derive(Debug, Clone, Copy)]
enum Ends {
    Reset,
    Closed,
}

/// Ends each connection when it has a request, whose bytes it leaves unread for a reset.
async fn end(data: TcpListener, ends: Ends) {
    while let Ok((mut socket, _)) = data.accept().await {
        match ends {
            Ends::Reset => drop(socket.peek(&mut [0]).await),
            Ends::Closed => drop(server::read(&mut socket).await),
        }
    }
}

/// What the peer has ended is counted by then, or half a second later. Behind a connector of the user's it may be a
/// proxy that has ended, and the service may get the request later.
#[tokio::test]
async fn calls_whose_server_ends_the_connection_count_for_half_a_second_if_it_is_direct() {
    for (ends, is_direct) in [
        (Ends::Reset, true),
        (Ends::Closed, true),
        (Ends::Reset, false),
    ] {
        let server = Server::start(b"").await;
        let data = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", data.local_addr().expect("an address"));
        tokio::spawn(end(data, ends));
        let credentials = Credentials::new("id", "s3cr3t").expect("it can be sent");
        let mut builder = Client::builder(&server.url(), &url, credentials)
            .loopback_http()
            .retry(RetryLayer::new().attempts(NonZeroU32::MIN));
        if !is_direct {
            builder = builder.connector(HttpConnector::new());
        }
        let client = builder.build().expect("loopback is let through");
        for _ in 0..5 {
            let error = get(&client, &url).await.map(drop).expect_err("no head");
            assert_eq!(error.sent(), Sent::Unknown, "{error}");
        }
        pause();
        sleep(Duration::from_millis(1_510)).await;
        let left = if is_direct { 0 } else { 5 };
        assert_eq!(client.limiter().snapshot().live, left, "{ends:?}");
        resume();
    }
}
