//! The whole stack against the simulated service on sockets. The tests check the service's ledger.

use std::time::Duration;

use tds_sim::{Config, Server};
use tokio::task::JoinSet;
use tower_tds::{Client, Limits, Quota, SharedLimits};

use crate::client::world::{
    Built as _, PATH, at_once, builder, config, count, read, read_many, start,
};

fn client(server: &Server, limits: impl Into<SharedLimits>) -> Client {
    builder(server).limits(limits).built()
}

#[tokio::test]
async fn a_thousand_cold_calls_share_one_token_post() {
    // Neither the service nor the client waits for a permit.
    let server = start(config(|config| config.rate = 1_000_000)).await;
    let client = client(&server, Limits::new(Quota::per_second(count(1_000_000))));
    for body in read_many(&client, 1_000).await {
        body.expect("data");
    }
    let seen = server.ledger().summary();
    assert_eq!((seen.data_calls, seen.token_posts), (1_000, 1));
    assert!(seen.peak_sockets <= 60, "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_share_their_limits() {
    let server = start(Config::default()).await;
    let limits = SharedLimits::from(Limits::default());
    let clients = [(); 2].map(|()| client(&server, &limits));
    let calls = (0..120).map(|n| {
        let path = format!("/v1/history/day-{n}?bytes=30000&rate=60000");
        read(clients[n % 2].get(path))
    });
    for body in at_once(calls).await {
        body.expect("data");
    }
    let seen = server.ledger().summary();
    assert_eq!(seen.by_status.keys().copied().collect::<Vec<_>>(), [200]);
    assert_eq!(seen.token_posts, 2, "a token for each");
    assert!(seen.largest_second <= 50, "{seen:?}");
    assert!(seen.peak_sockets <= 60, "{seen:?}");
}

#[tokio::test]
async fn token_request_precedes_queued_calls() {
    let server = start(Config::default()).await;
    let five_a_second = Quota::new(count(1), Duration::from_millis(200)).expect("an interval");
    let limits = SharedLimits::from(Limits::new(five_a_second));
    let waiting = client(&server, &limits);
    read(waiting.get(PATH)).await.expect("data");
    let mut calls: JoinSet<_> = (0..20).map(|_| read(waiting.get(PATH))).collect();
    tokio::task::yield_now().await;

    let cold = client(&server, &limits);
    tokio::spawn(read(cold.get(PATH)));
    while server.ledger().summary().tokens_issued < 2 {
        let call = calls.join_next().await.expect("a call still waits");
        call.expect("no panic").expect("data");
    }
    assert!(calls.len() > 10, "{} still wait", calls.len());
}
