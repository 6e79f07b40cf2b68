//! The shutdown of a client: no new calls, and a bounded wait for calls in flight.

use std::{future::IntoFuture, num::NonZeroU64, time::Duration};

use tds_sim::{Config, DataFault, Faults, Scripted, TokenFault, When};
use tokio::time::sleep;
use tower_tds::Kind;

use crate::client::sim::{client, start};

#[tokio::test]
async fn shutdown_refuses_calls_and_waits_for_those_in_flight() {
    let server = start(Config::default()).await;
    let mut faults = Faults::default();
    faults.before_head = "300ms".parse().expect("a delay");
    server.sim().set_faults(faults);
    let client = client(&server);
    client.tokens().ready().await.expect("a token");
    let call = tokio::spawn(client.get("/v1/live/bus").into_future());
    while server.ledger().summary().data_calls == 0 {
        sleep(Duration::from_millis(5)).await;
    }
    // The call has no waiter now, and is still in flight.
    call.abort();
    assert!(client.shutdown(Duration::from_secs(20)).await);
    let seen = server.ledger().summary();
    assert_eq!((seen.data_calls, seen.complete, seen.aborted), (1, 1, 0));
    let error = client
        .clone()
        .get("/v1/live/bus")
        .await
        .expect_err("it is closed");
    assert_eq!(error.kind(), Kind::InvalidRequest);
    assert_eq!(server.ledger().summary().data_calls, 1);
}

#[tokio::test]
async fn shutdown_waits_for_calls_in_backoff_or_queue() {
    let server = start(Config::default()).await;
    let mut faults = Faults::default();
    let busy = DataFault::Status {
        status: 503,
        burst: 1,
    };
    let second = NonZeroU64::new(101).expect("a count");
    faults.data.push(Scripted::new(busy, When::Every(second)));
    server.sim().set_faults(faults);
    let client = client(&server);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..120 {
        let call = client.get("/v1/live/bus").into_future();
        calls.spawn(async move { call.await?.bytes().await });
    }
    while server.ledger().summary().data_calls == 0 {
        sleep(Duration::from_millis(5)).await;
    }
    assert!(client.shutdown(Duration::from_secs(20)).await);
    // All of them have ended by then, including the one that met a 503.
    assert_eq!(server.ledger().summary().data_calls, 121);
    for call in calls.join_all().await {
        call.expect("data");
    }
}

#[tokio::test]
async fn shutdown_returns_false_after_its_timeout() {
    let server = start(Config::default()).await;
    let mut faults = Faults::default();
    faults.before_head = "30s".parse().expect("a delay");
    server.sim().set_faults(faults);
    let client = client(&server);
    let call = tokio::spawn(client.get("/v1/live/bus").into_future());
    while server.ledger().summary().data_calls == 0 {
        sleep(Duration::from_millis(5)).await;
    }
    assert!(!client.shutdown(Duration::from_millis(300)).await);
    call.abort();
}

#[tokio::test]
async fn shutdown_waits_for_an_abandoned_token_request() {
    let server = start(Config::default()).await;
    let mut faults = Faults::default();
    let slow = TokenFault::Slow(Duration::from_millis(400));
    let each = When::Every(NonZeroU64::MIN);
    faults.token.push(Scripted::new(slow, each));
    server.sim().set_faults(faults);
    let client = client(&server);
    let call = tokio::spawn(client.get("/v1/live/bus").into_future());
    while server.ledger().summary().token_posts == 0 {
        sleep(Duration::from_millis(5)).await;
    }
    call.abort();
    assert!(client.shutdown(Duration::from_secs(20)).await);
    // It was read to its end, which the ledger counts when all of it is written.
    let seen = server.ledger().summary();
    assert_eq!((seen.tokens_issued, seen.data_calls), (1, 0));
    assert!(client.tokens().health().is_ready());
}
