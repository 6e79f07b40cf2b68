//! Connections after a 416.

use std::time::Duration;

use http::Request;
use http_body_util::Empty;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;
use tower_tds_limits::Limiter;

use crate::connections::{
    count, get, limited,
    net::{Net, net_client},
    no_quota,
};

#[tokio::test(start_paused = true)]
async fn sockets_wait_for_the_lowered_limit() {
    let net = Net::of(["a"]);
    let a = net.server("a");
    // Four of the five connections are for data.
    let limiter = Limiter::new(no_quota().connections(count(5)));
    let client = net_client(&net, &limiter);
    let service = limited(&limiter, client.clone());
    let hold = async || {
        let request = Request::get(a.at("/held")).body(Empty::new());
        let response = client.clone().oneshot(request.expect("a request")).await;
        response.expect("a head")
    };
    let before = Instant::now();
    let too_many = get(service, a.at("/too-many")).await;
    too_many.expect("an answer");
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.connections, snapshot.most_connections), (1, 4));
    assert!(snapshot.silent_for.is_some());
    // The socket stays open and is used again, beside two new ones.
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(hold().await);
    }
    sleep(Duration::from_secs(590)).await;
    let fourth = tokio::spawn(get(client.clone(), a.uri()));
    sleep(Duration::from_secs(9)).await;
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.connections, snapshot.connects_waiting), (3, 1));
    fourth.await.expect("no panic").expect("an answer");
    assert_eq!(before.elapsed().as_secs(), 600);
    assert_eq!(a.open_sockets(), 4);
}
