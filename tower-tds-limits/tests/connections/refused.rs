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
async fn a_refused_connection_is_not_used_again_and_sheds_the_idle_ones() {
    let net = Net::of(["a"]);
    let a = net.server("a");
    let limiter = limiter(4);
    let client = net_client(&net, &limiter);
    let service = ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()))
        .service(client.clone());
    warm(&client, a, 4).await;
    tokio::time::sleep(Duration::from_secs(2)).await;

    // It had worked: no more than that follows.
    get(service.clone(), a.at("/too-many"))
        .await
        .expect("an answer");
    a.seen_ends(4).await;
    assert_eq!((a.requests(), a.open_sockets()), (5, 0));
    let snapshot = limiter.snapshot();
    assert_eq!(
        (snapshot.most_connections, snapshot.no_connect_for),
        (4, None)
    );
    get(service, a.uri()).await.expect("an answer");
}

#[tokio::test(start_paused = true)]
async fn a_416_silences_requests_if_its_socket_was_new_and_not_if_it_had_worked() {
    let net = Net::of(["a"]);
    let a = net.server("a");
    let limiter = limiter(4);
    let client = net_client(&net, &limiter);
    let service = ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()))
        .service(client.clone());
    for had_worked in [true, false] {
        if had_worked {
            warm(&client, a, 4).await;
            // Those that are unused for a second make room then, and the next one is new.
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let too_many = get(service.clone(), a.at("/too-many")).await;
        too_many.expect("an answer");
        let silent = limiter.snapshot().silent_for;
        assert_eq!(silent.is_none(), had_worked, "{silent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn new_connections_that_are_refused_lower_the_limit_for_ten_minutes() {
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
    for (seconds, most, ends) in [(0, 8, 1), (1, 6, 2)] {
        // A new one each time, since the last was closed.
        let too_many = get(service.clone(), a.at("/too-many")).await;
        too_many.expect("an answer");
        assert_eq!(before.elapsed().as_secs(), seconds, "a second of silence");
        let snapshot = limiter.snapshot();
        assert_eq!((snapshot.connections, snapshot.most_connections), (5, most));
        a.seen_ends(ends).await;
    }
    assert_eq!(a.open_sockets(), 4);
    for _ in 0..2 {
        held.push(hold().await);
    }
    assert_eq!(before.elapsed().as_secs(), 2);
    let seventh = tokio::spawn(get(client.clone(), a.uri()));
    tokio::time::sleep(Duration::from_secs(598)).await;
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.connections, snapshot.connects_waiting), (6, 1));
    seventh.await.expect("no panic").expect("an answer");
    assert_eq!(before.elapsed().as_secs(), 601);
    assert_eq!(a.open_sockets(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_416_in_a_hundred_answers_of_sockets_that_work_leaves_the_limit_as_it_is() {
    // About a range, from a service that forgets to say so.
    let net = Net::of(["a"]);
    let a = net.server("a");
    let limiter = limiter(60);
    let service = ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()))
        .service(net_client(&net, &limiter));
    for n in 1..=3_000_u32 {
        let uri = if n % 100 == 0 {
            a.at("/too-many")
        } else {
            a.uri()
        };
        get(service.clone(), uri).await.expect("an answer");
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(limiter.snapshot().most_connections >= 45, "after {n}");
    }
}
