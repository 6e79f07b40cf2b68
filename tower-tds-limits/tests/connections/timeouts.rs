//! Connect timeouts. They do not include the wait for a permit, which has a bound of its own.

use std::time::Duration;

use tokio::time::Instant;
use tower::{Layer, ServiceBuilder, ServiceExt, timeout::TimeoutLayer};
use tower_tds_limits::ConnectionLimitLayer;

use crate::connections::{limiter, net::Net};

#[tokio::test(start_paused = true)]
async fn a_connect_timeout_does_not_include_the_wait() {
    let net = Net::of(["a"]);
    let layer = ConnectionLimitLayer::new(limiter(1));
    let timed = ServiceBuilder::new()
        .layer(TimeoutLayer::new(Duration::from_millis(300)))
        .service(layer.layer(net.clone()));
    let uri = net.server("a").uri();
    let mut readied = timed.clone();
    let first = readied.ready().await.expect("there is a permit");
    let before = Instant::now();
    let second = tokio::spawn(timed.oneshot(uri));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let _: &mut _ = first;
    // The permit of the connect is back a second later.
    drop(readied);
    second.await.expect("no panic").expect("a socket");
    assert_eq!(before.elapsed().as_secs(), 4);
}
