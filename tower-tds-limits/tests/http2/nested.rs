//! A call that is made inside another call, by its body when that is read.

use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::sync::oneshot;
use tower::{Layer, ServiceExt};
use tower_tds_limits::{Background, ConnectionLimitLayer};

use crate::{
    client,
    fetched::Fetched,
    limiter,
    server::{self, Server},
};

#[tokio::test]
async fn a_body_that_makes_a_call_waits_for_its_socket() {
    // HTTP/2 reads a body in its connection's task first, and then in one of its own.
    let (a, b) = (Server::start().await, Server::start().await);
    let sink = Server::start_plain().await;
    let limiter = limiter(1);
    let client = client([&a, &b], &limiter);
    let get = |uri| Request::get(uri).body(Empty::new()).expect("a request");
    let held = client.clone().oneshot(get(a.held())).await.expect("a head");

    let fetch = client.clone().oneshot(get(b.uri()));
    let (told, fetched) = oneshot::channel();
    let body = Fetched::new(async {
        let response = fetch.await.expect("an answer");
        let body = response.into_body().collect().await.expect("a body");
        told.send(body.to_bytes()).expect("the test waits");
        server::BODY.into()
    });
    let connector = ConnectionLimitLayer::new(crate::limiter(1)).layer(HttpConnector::new());
    let uploader: Client<_, Fetched> = Client::builder(Background::new(TokioExecutor::new()))
        .http2_only(true)
        .build(connector);
    let upload = Request::post(sink.held()).body(body).expect("a request");
    let uploading = uploader.request(upload).await.expect("a head");
    assert_eq!(limiter.snapshot().connects_waiting, 1, "it waits there");

    a.release();
    drop(held.into_body().collect().await.expect("a body"));
    assert_eq!(fetched.await.expect("an answer"), server::BODY);
    assert_eq!((b.requests(), sink.requests()), (1, 1));
    drop(uploading);
}
