//! The end of a program waits for the token request in flight, and for nothing else.

use crate::layer::support;

use std::pin::pin;

use support::{Endpoint, builder, endpoint::Reply, poll_once, secs, settle, store::Store, tokens};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};

#[tokio::test(start_paused = true)]
async fn shutdown_awaits_the_request_in_flight_and_saves_its_token() {
    let store = Store::default();
    let endpoint = Endpoint::always(Reply::token(86_400).after(secs(3)));
    let tokens = builder().store(store.clone()).build(endpoint.clone());
    // The request has no waiter: its caller was dropped first.
    assert!(poll_once(pin!(tokens.ready())).is_none());
    sleep(secs(1)).await;
    let start = Instant::now();
    tokens.idle().await;
    assert_eq!(start.elapsed(), secs(2));
    drop(tokens);
    settle().await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    // The next process loads the token from the store.
    let next = builder().store(store).build(endpoint.clone());
    next.ready().await.unwrap();
    assert_eq!(endpoint.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_when_the_request_fails_or_times_out() {
    for (reply, wait) in [
        (Reply::down().after(secs(3)), secs(3)),
        (Reply::hang(), secs(10)),
        (Reply::panic(), secs(0)),
    ] {
        let tokens = tokens(&Endpoint::always(reply));
        drop(poll_once(pin!(tokens.ready())));
        settle().await;
        let start = Instant::now();
        tokens.idle().await;
        assert_eq!(start.elapsed(), wait);
    }
}
