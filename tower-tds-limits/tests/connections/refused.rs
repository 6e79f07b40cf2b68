//! Connections after a 416.

use std::time::Duration;

use http::Request;
use http_body_util::Empty;
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt};
use tower_tds_limits::RequestLimitLayer;

use crate::{
    get, limiter,
    net::Net,
    reclaim::{net_client, warm},
};

#[tokio::test(start_paused = true)]
async fn a_416_closes_its_socket_and_the_idle_ones_and_silences_for_a_second() {
    let net = Net::of(["a"]);
    let a = net.server("a");
    let limiter = limiter(4);
    let client = net_client(&net, &limiter);
    let service = ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()))
        .service(client.clone());
    warm(&client, a, 4).await;
    tokio::time::sleep(Duration::from_secs(2)).await;

    let too_many = get(service.clone(), a.at("/too-many")).await;
    too_many.expect("an answer");
    let refused = Instant::now();
    a.seen_ends(4).await;
    assert_eq!((a.requests(), a.open_sockets()), (5, 0));
    let snapshot = limiter.snapshot();
    assert_eq!(snapshot.most_connections, 3);
    assert!(snapshot.no_connect_for.is_some() && snapshot.silent_for.is_some());
    get(service, a.uri()).await.expect("an answer");
    assert!(refused.elapsed() >= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn refused_connections_lower_the_limit_for_ten_minutes() {
    let net = Net::of(["a"]);
    let a = net.server("a");
    let limiter = limiter(8);
    let client = net_client(&net, &limiter);
    let service = ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()))
        .service(client.clone());
    let hold = async || {
        let request = Request::get(a.at("/held")).body(Empty::new());
        let response = client.clone().oneshot(request.expect("a request")).await;
        response.expect("a head")
    };
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(hold().await);
    }
    let before = Instant::now();
    let too_many = get(service.clone(), a.at("/too-many")).await;
    too_many.expect("an answer");
    // Five were open. A sixth less, rounded up, is six.
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.connections, snapshot.most_connections), (5, 6));
    a.seen_ends(1).await;
    assert_eq!(a.open_sockets(), 4);
    for _ in 0..2 {
        held.push(hold().await);
    }
    assert_eq!(before.elapsed().as_secs(), 1, "a second of silence");
    let seventh = tokio::spawn(get(client.clone(), a.uri()));
    tokio::time::sleep(Duration::from_secs(598)).await;
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.connections, snapshot.connects_waiting), (6, 1));
    seventh.await.expect("no panic").expect("an answer");
    assert_eq!(before.elapsed().as_secs(), 600);
    assert_eq!(a.open_sockets(), 7);
}
