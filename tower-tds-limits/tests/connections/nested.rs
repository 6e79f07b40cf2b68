//! Calls that a request body makes while it is read.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::sync::oneshot;
use tower::{Layer, ServiceExt};
use tower_tds_limits::{ConnectionLimitLayer, Limiter};

use crate::{
    fetched::Fetched,
    get, limiter,
    net::{Net, NetClient, net_client},
    server,
};

/// Makes an upload whose body fetches its bytes from `host`. No socket is free for that before `a`
/// is released. Returns the fetched bytes.
async fn fetched_from(host: &str, net: &Net, limiter: &Limiter, client: &NetClient) -> Bytes {
    let a = net.server("a");
    let request = Request::get(a.at("/held")).body(Empty::new());
    let other = net_client(net, limiter);
    let holder = if host == "a" { client } else { &other };
    let held = holder.clone().oneshot(request.expect("a request")).await;
    let held = held.expect("a head").into_body();

    let fetch = get(client.clone(), net.server(host).uri());
    let (told, fetched) = oneshot::channel();
    let body = Fetched::new(async {
        let bytes = fetch.await.expect("an answer");
        told.send(bytes.clone()).expect("the test waits");
        bytes
    });
    let connector = ConnectionLimitLayer::new(crate::limiter(1)).layer(net.clone());
    let uploader: Client<_, Fetched> = Client::builder(TokioExecutor::new()).build(connector);
    let upload = Request::post(net.server("sink").at("/early")).body(body);
    let response = uploader.request(upload.expect("a request")).await;
    let response = response.expect("an answer");
    assert_eq!(limiter.snapshot().connects_waiting, 1, "it waits there");

    a.release();
    drop(held.collect().await.expect("a body"));
    // Its idle socket is closed.
    drop(other);
    let fetched = fetched.await.expect("an answer");
    drop(response);
    fetched
}

#[tokio::test(start_paused = true)]
async fn call_made_by_a_request_body_waits_for_its_socket() {
    let net = Net::of(["a", "b", "sink"]);
    let limiter = limiter(1);
    let client = net_client(&net, &limiter);
    let fetched = fetched_from("b", &net, &limiter, &client).await;
    assert_eq!(fetched, server::BODY);
    assert_eq!(net.server("b").requests(), 1);
    assert_eq!(limiter.snapshot().connects_waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn call_made_by_a_request_body_can_reuse_a_socket() {
    let net = Net::of(["a", "sink"]);
    let limiter = limiter(1);
    let client = net_client(&net, &limiter);
    let fetched = fetched_from("a", &net, &limiter, &client).await;
    assert_eq!(fetched, server::BODY);
    let a = net.server("a");
    assert_eq!((a.requests(), a.opened_sockets()), (2, 1));
}
