//! The connection of a request: after a failed one, and where there is none in time.

use std::time::Duration;

use http::{Method, Request};
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::{
    net::{TcpSocket, TcpStream},
    time::{Instant, pause, resume, sleep},
};
use tower_tds::{
    Client, Error, Kind, Limits,
    layers::errors::{RetryLayer, Sent},
};

use crate::client::{
    raw::{Act, Raw, answer, say},
    world::{Built as _, count},
};

async fn call(client: &Client, method: &Method) -> Result<(), Error> {
    let request = Request::builder().method(method).uri("/").body(());
    let called = client.request(request.expect("a request")).await;
    called.map(drop)
}

#[tokio::test]
async fn idempotent_call_on_a_closed_connection_uses_a_new_one_and_others_are_not_repeated() {
    for (method, is_repeated) in [(Method::PUT, true), (Method::POST, false)] {
        // The server closes the first connection as soon as its second request arrives.
        let raw = Raw::start(|asked| match (asked.connection, asked.number) {
            (1, 2) => vec![Act::Cut],
            _ => vec![say(answer("200 OK", ""))],
        });
        let raw = raw.await;
        let soon = Duration::from_millis(1);
        // One data connection at most, so that no connect races with the pool; the other is the token's.
        let limits = Limits::default().connections(count(2));
        let retry = RetryLayer::new().attempts(count(2)).backoff(soon, soon);
        let client = raw.builder().limits(limits).retry(retry).built();
        let first = call(&client, &Method::GET).await;
        first.expect("the first connection is well at first");
        let called = call(&client, &method).await;
        let seen = (raw.calls().len(), raw.connects());
        if is_repeated {
            called.expect("the next connection is well");
            assert_eq!(seen, (3, 2), "{method}");
        } else {
            let error = called.expect_err("it may have run");
            assert_eq!((error.kind(), error.attempts()), (Kind::Reset, 1));
            assert_eq!(seen, (2, 1), "{method}");
        }
    }
}

#[tokio::test]
#[cfg_attr(
    not(target_os = "linux"),
    ignore = "Linux alone says nothing to who would connect while its queue is full"
)]
async fn unaccepted_connect_fails_after_30_seconds_unsent() {
    let socket = TcpSocket::new_v4().expect("a socket");
    let port = ([127, 0, 0, 1], 0).into();
    socket.bind(port).expect("a port");
    let full = socket.listen(0).expect("it listens");
    let address = full.local_addr().expect("an address");
    let queued = TcpStream::connect(address).await.expect("one has room");

    let raw = Raw::saying("").await;
    let soon = Duration::from_millis(1);
    let retry = RetryLayer::new().attempts(count(3)).backoff(soon, soon);
    let builder = raw.builder_of(&format!("http://{address}"));
    let client = builder.retry(retry).built();
    client.tokens().ready().await.expect("a token");
    // From here on only timers act.
    pause();
    let start = Instant::now();
    let error = call(&client, &Method::POST).await;
    let error = error.expect_err("nobody answers");
    assert_eq!((error.kind(), error.attempts()), (Kind::Connect, 3));
    assert_eq!((error.sent(), start.elapsed().as_secs()), (Sent::Never, 30));
    drop((queued, full));
}

/// When the peer has ended a connection, its request is counted by then or half a second later. Behind a connector of the user's it may be a
/// proxy that has ended, and the service may get the request later.
#[tokio::test]
async fn calls_whose_server_ends_the_connection_count_for_half_a_second_if_it_is_direct() {
    for (resets, is_direct) in [(true, true), (false, true), (true, false)] {
        let end = move || if resets { Act::Reset } else { Act::Cut };
        let raw = Raw::start(move |_| vec![end()]).await;
        let once = RetryLayer::new().attempts(count(1));
        let mut builder = raw.builder().retry(once);
        if !is_direct {
            builder = builder.connector(HttpConnector::new());
        }
        let client = builder.built();
        for _ in 0..5 {
            let error = client.get("/").await.map(drop).expect_err("no head");
            assert_eq!(error.sent(), Sent::Unknown, "{error}");
        }
        pause();
        let live = || client.limiter().snapshot().live;
        sleep(Duration::from_millis(1_100)).await;
        assert!(live() > 0, "reset: {resets}");
        sleep(Duration::from_millis(410)).await;
        let left = if is_direct { 0 } else { 5 };
        assert_eq!(live(), left, "reset: {resets}");
        resume();
    }
}
