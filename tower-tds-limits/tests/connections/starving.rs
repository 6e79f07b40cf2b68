//! Sockets that are always busy for one host give way to another.

use std::time::Duration;

use http_body_util::Empty;
use tokio::{task::JoinSet, time::Instant};
use tower::ServiceBuilder;
use tower_tds_limits::{Limiter, Limits, Quota, RequestLimitLayer, Rules};

use crate::{count, get, net::Net, reclaim::net_client};

/// Two sockets, and far more requests in flight.
fn two_of_many() -> Limiter {
    let limits = Limits::new(Quota::per_second(count(1_000_000)))
        .rules(Rules::window())
        .max_wait(Duration::from_secs(20));
    Limiter::new(limits.connections(count(2)).in_flight(count(60)))
}

#[tokio::test(start_paused = true)]
async fn a_host_is_served_while_another_keeps_every_socket_busy() {
    let net = Net::of(["a", "b"]);
    let limiter = two_of_many();
    let service = ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()))
        .service(net_client(&net, &limiter));
    let slow = net.server("a").at("/slow");
    let mut loops = JoinSet::new();
    for _ in 0..40 {
        let (service, uri) = (service.clone(), slow.clone());
        loops.spawn(async move {
            loop {
                get(service.clone(), uri.clone()).await.expect("an answer");
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    // Answers take 100 ms: 40 calls are before it, two at a time, and then it is its turn.
    for _ in 0..3 {
        let before = Instant::now();
        let body = get(service.clone(), net.server("b").uri()).await;
        body.expect("an answer");
        assert!(
            before.elapsed() < Duration::from_millis(2_500),
            "{:?}",
            before.elapsed()
        );
    }
    let requests = net.server("a").requests();
    println!("{requests} {:?}", net.server("a").opened_sockets());
    assert!(
        net.server("a").opened_sockets() < 10,
        "{}",
        net.server("a").opened_sockets()
    );
    let _: Empty<bytes::Bytes> = Empty::new();
}
