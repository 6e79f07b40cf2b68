//! Errors of calls that the limits ended before they were sent.

use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use tokio::time::{pause, resume, sleep};
use tower_tds::{
    Builder, Client, Kind, Limits,
    layers::{
        errors::{RetryLayer, Sent},
        outcome,
    },
};

use crate::client::{
    raw::{Act, Raw, say},
    world::{Built as _, count},
};

fn once(builder: Builder) -> Client {
    builder.retry(RetryLayer::new().attempts(count(1))).built()
}

#[tokio::test]
async fn call_without_a_socket_in_time_was_not_sent() {
    // The server never closes: the only data socket counts for 30 s after its call was cancelled.
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n";
    let raw = Raw::start(move |_| vec![say(head), Act::Hang]).await;
    let client = once(
        raw.builder()
            .limits(Limits::default().connections(count(2))),
    );
    drop(client.get("/").await.expect("the head of a success"));
    pause();
    let call = client.get("/").deadline(Duration::from_secs(5));
    let error = call.await.map(drop).expect_err("there is no socket");
    assert_eq!((error.kind(), error.sent()), (Kind::Timeout, Sent::Never));
    let chain: Vec<_> = outcome::chain(&error).map(ToString::to_string).collect();
    let limit = "waiting for a connection; request not sent";
    assert!(chain.iter().any(|link| link.contains(limit)), "{chain:?}");
}

/// What the peer has ended is counted by then, or half a second later. Behind a connector of the user's it may be a
/// proxy that has ended, and the service may get the request later.
#[tokio::test]
async fn calls_whose_server_ends_the_connection_count_for_half_a_second_if_it_is_direct() {
    for (resets, is_direct) in [(true, true), (false, true), (true, false)] {
        let end = move || if resets { Act::Reset } else { Act::Cut };
        let raw = Raw::start(move |_| vec![end()]).await;
        let mut builder = raw.builder();
        if !is_direct {
            builder = builder.connector(HttpConnector::new());
        }
        let client = once(builder);
        for _ in 0..5 {
            let error = client.get("/").await.map(drop).expect_err("no head");
            assert_eq!(error.sent(), Sent::Unknown, "{error}");
        }
        pause();
        sleep(Duration::from_millis(1_510)).await;
        let left = if is_direct { 0 } else { 5 };
        let live = client.limiter().snapshot().live;
        assert_eq!(live, left, "reset: {resets}");
        resume();
    }
}
