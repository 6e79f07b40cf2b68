//! HTTP/2 by ALPN, as a TLS server sees its sockets.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]
#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

#[path = "../connections/fetched.rs"]
mod fetched;
mod grpc;
mod nested;
mod reclaim;
mod server;

use std::num::NonZeroU32;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::task::JoinSet;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_tds_limits::{
    Background, ConnectionLimit, ConnectionLimitLayer, Limiter, Limits, Quota, RequestLimitLayer,
    Rules, Track,
};

use self::server::Server;

/// A client whose answers say when they have ended.
type Https<B = Empty<Bytes>> = Track<Client<HttpsConnector<ConnectionLimit<HttpConnector>>, B>>;

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a count is not zero")
}

fn limiter(connections: u32) -> Limiter {
    let limits = Limits::new(Quota::per_second(count(1_000_000)))
        .rules(Rules::window())
        .connections(count(connections))
        .in_flight(count(100));
    Limiter::new(limits)
}

fn client<const N: usize>(servers: [&Server; N], limiter: &Limiter) -> Https {
    let mut roots = RootCertStore::empty();
    for server in servers {
        roots.add(server.certificate()).expect("a certificate");
    }
    let tls = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring knows them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_all_versions()
        .wrap_connector(ConnectionLimitLayer::new(limiter.clone()).layer(tcp));
    let client = Client::builder(Background::new(TokioExecutor::new())).build(https);
    Track::new(client)
}

/// A hundred calls at once.
async fn a_hundred(server: &Server, client: &Https, limiter: &Limiter) {
    let service = ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()))
        .service(client.clone());
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let request = Request::get(server.uri()).body(Empty::new());
        let call = service.clone().oneshot(request.expect("a request"));
        calls.spawn(async move {
            let response = call.await.expect("an answer");
            assert_eq!(response.version(), http::Version::HTTP_2);
            response.into_body().collect().await.expect("a body")
        });
    }
    for body in calls.join_all().await {
        assert_eq!(body.to_bytes(), server::BODY);
    }
}

#[tokio::test]
async fn a_cold_start_opens_no_more_sockets_than_the_limit() {
    // Each of the first requests opens a socket, because none knows yet that one is enough.
    let server = Server::start().await;
    let limiter = limiter(10);
    let client = client([&server], &limiter);
    a_hundred(&server, &client, &limiter).await;
    assert_eq!(server.requests(), 100);
    assert!(server.peak_sockets() <= 10, "{}", server.peak_sockets());
    // All but one were closed again.
    server.closed_all_but(1).await;
    while limiter.snapshot().connections > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(limiter.snapshot().connects_waiting, 0);
}

#[tokio::test]
async fn a_warm_connection_carries_more_requests_than_there_are_permits() {
    let server = Server::start().await;
    let limiter = limiter(1);
    let client = client([&server], &limiter);
    let request = Request::get(server.uri()).body(Empty::new());
    let response = client.clone().oneshot(request.expect("a request")).await;
    drop(response.expect("an answer"));
    // Nobody is answered before all of them are there: all are in flight at once.
    server.answer_together(100);
    a_hundred(&server, &client, &limiter).await;
    assert_eq!((server.requests(), server.opened_sockets()), (101, 1));
}
