//! Sockets that are always busy for one host give way to another.

use std::time::Duration;

use http::Uri;
use tokio::{task::JoinSet, time::Instant};
use tower::ServiceBuilder;
use tower_tds_limits::{Limiter, Limits, Quota, RequestLimit, RequestLimitLayer, Rules};

use crate::{
    client, count, get,
    net::Net,
    reclaim::{NetClient, net_client},
    server::Server,
};

/// So many sockets, and far more requests in flight.
fn few_of_many(sockets: u32) -> Limiter {
    let limits = Limits::new(Quota::per_second(count(1_000_000)))
        .rules(Rules::window())
        .max_wait(Duration::from_secs(20));
    Limiter::new(limits.connections(count(sockets)).in_flight(count(60)))
}

fn service(net: &Net, limiter: &Limiter) -> RequestLimit<NetClient> {
    ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()))
        .service(net_client(net, limiter))
}

/// So many calls at once, and the next as soon as one is answered.
fn keep_busy(service: &RequestLimit<NetClient>, uri: &Uri, calls: u32) -> JoinSet<()> {
    let mut loops = JoinSet::new();
    for _ in 0..calls {
        let (service, uri) = (service.clone(), uri.clone());
        loops.spawn(async move {
            loop {
                get(service.clone(), uri.clone()).await.expect("an answer");
            }
        });
    }
    loops
}

#[tokio::test(start_paused = true)]
async fn a_host_is_served_in_its_turn_while_another_keeps_every_socket_busy() {
    let net = Net::of(["a", "b"]);
    let limiter = few_of_many(2);
    let service = service(&net, &limiter);
    let (a, b) = (net.server("a"), net.server("b"));
    let _busy = keep_busy(&service, &a.at("/slow"), 40);
    tokio::time::sleep(Duration::from_secs(3)).await;
    for _ in 0..5 {
        let before = Instant::now();
        let body = get(service.clone(), b.uri()).await;
        body.expect("an answer");
        // Of 40 calls before it two are answered in each 100 ms, or one; and then it is its turn.
        let waited = before.elapsed();
        assert!(waited < Duration::from_millis(4_500), "{waited:?}");
        // Until the socket is the other host's again.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert!(a.requests() > 150, "{}", a.requests());
    // A socket for each time, and none for the many calls that one hands on to the next.
    assert!(a.opened_sockets() <= 2 + 5, "{}", a.opened_sockets());
    assert!(b.opened_sockets() >= 4, "{}", b.opened_sockets());
}

#[tokio::test(start_paused = true)]
async fn a_host_is_served_at_the_second_end_where_nobody_is_before_it() {
    let net = Net::of(["a", "b"]);
    for (sockets, calls) in [(1, 1), (1, 2), (2, 2), (2, 4), (3, 3)] {
        let limiter = few_of_many(sockets);
        let service = service(&net, &limiter);
        let busy = keep_busy(&service, &net.server("a").at("/slow"), calls);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = Instant::now();
        let body = get(service.clone(), net.server("b").uri()).await;
        body.expect("an answer");
        // The first end tells that sockets are handed on.
        let waited = before.elapsed();
        assert!(
            waited <= Duration::from_millis(301),
            "{sockets} {calls} {waited:?}"
        );
        drop(busy);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_share_two_sockets_on_two_threads() {
    let (a, b) = (Server::start().await, Server::start().await);
    let limiter = few_of_many(2);
    let service = ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()))
        .service(client(&limiter));
    let mut loops = JoinSet::new();
    for _ in 0..40 {
        let (service, uri) = (service.clone(), a.at("/slow"));
        loops.spawn(async move {
            loop {
                get(service.clone(), uri.clone()).await.expect("an answer");
            }
        });
    }
    a.seen_requests(2).await;
    for n in 1..=5 {
        // In the end it is its turn; a wait of 20 s is an error.
        get(service.clone(), b.uri()).await.expect("an answer");
        // The socket is the other host's again.
        b.seen_ends(n).await;
    }
    assert!(a.requests() > 20, "{}", a.requests());
}
