//! Connects that are dropped by the caller, shared, or moved to another task.

use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::Empty;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{
    task::JoinSet,
    time::{interval, sleep, timeout},
};
use tower::Layer;
use tower_tds_limits::{ConnectionLimitLayer, Limiter, Limits};

use crate::{
    get, limiter,
    net::{Net, SILENT, SLOW, net_client},
};

/// Twenty calls a second to one host, each on a new socket, and four a second with a timeout of a
/// second to a host that drops their packets.
#[tokio::test(start_paused = true)]
async fn silent_host_leaves_nine_tenths_of_another_hosts_rate() {
    let net = Net::of(["healthy"]);
    let healthy = net.server("healthy");
    let limiter = Limiter::new(Limits::default());
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(net.clone());
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build(connector);
    let silent: Uri = format!("http://{SILENT}/").parse().expect("a URI");
    let mut ticks = interval(Duration::from_millis(50));
    let mut calls = JoinSet::new();
    for tick in 0..20 * SECONDS {
        ticks.tick().await;
        calls.spawn(timeout(SECOND, get(client.clone(), healthy.uri())));
        if tick % 5 == 0 {
            calls.spawn(timeout(SECOND, get(client.clone(), silent.clone())));
        }
    }
    calls.join_all().await;
    assert!(
        healthy.requests() >= 20 * SECONDS * 9 / 10,
        "{} requests",
        healthy.requests()
    );
    assert!(healthy.peak_sockets() <= 60);
}

#[tokio::test(start_paused = true)]
async fn connect_left_by_its_call_becomes_an_idle_socket() {
    let net = Net::of([SLOW]);
    let (limiter, slow) = (limiter(10), net.server(SLOW));
    let client = net_client(&net, &limiter);
    let first = tokio::spawn(get(client.clone(), slow.at("/late")));
    slow.seen_requests(1).await;
    // The second call begins to connect, but gets the socket of the first.
    let second = tokio::spawn(get(client.clone(), slow.uri()));
    sleep(SECOND / 2).await;
    slow.release();
    first.await.expect("no panic").expect("an answer");
    second.await.expect("no panic").expect("an answer");
    sleep(10 * SECOND).await;
    assert_eq!((slow.requests(), slow.opened_sockets()), (2, 2));
    drop(client);
    sleep(2 * SECOND).await;
    assert_eq!(
        (slow.open_sockets(), limiter.snapshot().connections),
        (0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn call_moved_to_another_task_while_connecting_goes_on() {
    let net = Net::of([SLOW]);
    let (limiter, slow) = (limiter(1), net.server(SLOW));
    let mut call = Box::pin(get(net_client(&net, &limiter), slow.uri()));
    let call = tokio::spawn(async move {
        timeout(SECOND, &mut call).await.expect_err("it connects");
        Some(call)
    });
    let call = call.await.expect("no panic").expect("it was put there");
    let moved = tokio::spawn(call).await.expect("no panic");
    moved.expect("an answer");
    assert_eq!((slow.requests(), slow.opened_sockets()), (1, 1));
}

const SECONDS: u32 = 60;

const SECOND: Duration = Duration::from_secs(1);
