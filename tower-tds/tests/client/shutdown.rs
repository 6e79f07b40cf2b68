//! The shutdown of a client: no new calls, and a bounded wait for calls in flight.

use std::{future::IntoFuture, time::Duration};

use tower_tds::Kind;

use crate::client::world::{PATH, faults, faulty, read_many, served, until};

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn shutdown_refuses_calls_and_waits_for_those_in_flight() {
    let (server, client) = faulty(&["head=300ms"]).await;
    let call = tokio::spawn(client.get(PATH).into_future());
    until(|| server.ledger().summary().data_calls == 1).await;
    // The call has no waiter now, and is still in flight.
    call.abort();
    assert!(client.shutdown(LONG).await);
    let seen = server.ledger().summary();
    assert_eq!((seen.data_calls, seen.complete, seen.aborted), (1, 1, 0));
    let error = client.clone().get(PATH).await.expect_err("it is closed");
    assert_eq!(error.kind(), Kind::InvalidRequest);
    assert_eq!(server.ledger().summary().data_calls, 1);
}

#[tokio::test]
async fn shutdown_waits_for_calls_in_backoff_or_queue() {
    let (server, client) = faulty(&["data=503@every:101"]).await;
    let calling = client.clone();
    let calls = tokio::spawn(async move { read_many(&calling, 120).await });
    until(|| server.ledger().summary().data_calls > 0).await;
    assert!(client.shutdown(LONG).await);
    // All of them have ended by then, including the one that met a 503.
    assert_eq!(server.ledger().summary().data_calls, 121);
    for call in calls.await.expect("no panic") {
        call.expect("data");
    }
}

#[tokio::test]
async fn shutdown_returns_false_after_its_timeout() {
    let (server, client) = faulty(&["head=30s"]).await;
    let call = tokio::spawn(client.get(PATH).into_future());
    until(|| server.ledger().summary().data_calls == 1).await;
    assert!(!client.shutdown(Duration::from_millis(300)).await);
    call.abort();
}

#[tokio::test]
async fn shutdown_waits_for_an_abandoned_token_request() {
    let (server, client) = served().await;
    server.sim().set_faults(faults(&["token=slow:400ms"]));
    let call = tokio::spawn(client.get(PATH).into_future());
    until(|| server.ledger().summary().token_posts == 1).await;
    call.abort();
    assert!(client.shutdown(LONG).await);
    // It was read to its end, which the ledger counts when all of it is written.
    let seen = server.ledger().summary();
    assert_eq!((seen.tokens_issued, seen.data_calls), (1, 0));
    assert!(client.tokens().health().is_ready());
}
