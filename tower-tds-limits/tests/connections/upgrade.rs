//! A socket keeps its permit after a protocol upgrade.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Empty;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tower::{Layer, ServiceExt};
use tower_tds_limits::ConnectionLimitLayer;

use crate::connections::{get, limiter, net::Net};

#[tokio::test(start_paused = true)]
async fn an_upgraded_socket_keeps_its_permit_until_it_is_closed() {
    let net = Net::of(["a", "b"]);
    let limiter = limiter(1);
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(net.clone());
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let request = Request::get(net.server("a").at("/upgrade"))
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "telex")
        .body(Empty::new());
    let response = client.clone().oneshot(request.expect("a request")).await;
    let response = response.expect("an answer");
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let telex = hyper::upgrade::on(response).await.expect("a socket");

    // However long the socket is silent, it is not cut for another one.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let refused = get(client.clone(), net.server("b").uri()).await;
    let refused = refused.expect_err("the one permit is held");
    assert!(refused.contains("timed out after"), "{refused}");
    assert_eq!(net.server("a").open_sockets(), 1);

    drop(telex);
    // The server may count it for a second more.
    tokio::time::sleep(Duration::from_secs(1)).await;
    get(client, net.server("b").uri())
        .await
        .expect("there is room");
}
