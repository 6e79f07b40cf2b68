//! Connects that are dropped by the caller.

use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::Empty;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{
    task::JoinSet,
    time::{interval, timeout},
};
use tower::Layer;
use tower_tds_limits::{ConnectionLimitLayer, Limiter, Limits};

use crate::connections::{
    get,
    net::{Net, SILENT},
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
    let requests = healthy.requests();
    assert!(requests >= 20 * SECONDS * 9 / 10, "{requests} requests");
    assert!(healthy.peak_sockets() <= 60);
}

const SECONDS: u32 = 60;

const SECOND: Duration = Duration::from_secs(1);
