//! The whole stack as one layer, over other HTTP clients and under tower's own layers.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use tds_sim::{Config, Server};
use tokio::time::Instant;
use tower::{Layer, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};
use tower_tds::{
    Limiter, Limits, TdsLayer,
    layers::{
        errors::{DeadlineAt, RetryLayer},
        limits::{ConnectionLimitLayer, RequestLimitLayer},
        token::{Origin, TokenEndpoint, TokenSource},
    },
};

use crate::client::sim;

type Http = legacy::Client<<ConnectionLimitLayer as Layer<HttpConnector>>::Service, Full<Bytes>>;

/// A layer for the simulated service, and hyper-util's client to put it around, which keeps `idle`
/// idle sockets.
async fn within(limits: Limits, idle: usize) -> (Server, TdsLayer, Http) {
    let server = sim::start(Config::default()).await;
    let limiter = Limiter::new(limits);
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(HttpConnector::new());
    let http = legacy::Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(idle)
        .build(connector);
    let endpoint = TokenEndpoint::keycloak(server.auth_url(), "ServiceConnect");
    let counted = RequestLimitLayer::new(limiter.first_in_line()).layer(http.clone());
    let tokens = TokenSource::builder(endpoint.expect("loopback"), sim::credentials(&server));
    let tokens = tokens.build(counted);
    let base = server.base_url().parse().expect("an address");
    let origin = Origin::from_uri(&base).expect("loopback");
    (server, TdsLayer::new(tokens, [origin], limiter), http)
}

fn get(server: &Server, path: &str) -> Request<Full<Bytes>> {
    let url = format!("{}{path}", server.base_url());
    Request::get(url).body(Full::default()).expect("a request")
}

#[tokio::test]
async fn tds_layer_works_under_tower_layers_and_boxed() {
    let (server, tds, http) = within(Limits::default(), usize::MAX).await;
    let service = ServiceBuilder::new()
        .buffer(10)
        .timeout(Duration::from_secs(20))
        .load_shed()
        .concurrency_limit(5)
        .layer(tds.retry(RetryLayer::new().deadline(Duration::from_secs(10))))
        .service(http);
    let service = BoxCloneSyncService::new(service);
    let answer = service.oneshot(get(&server, "/v1/live/bus")).await;
    assert_eq!(answer.expect("data").status(), StatusCode::OK);
}

#[tokio::test]
async fn refused_call_releases_its_socket_for_the_token_request() {
    let one = std::num::NonZeroU32::MIN;
    let limits = Limits::default().connections(one).in_flight(one);
    let (server, tds, http) = within(limits, 0).await;
    let service = ServiceBuilder::new().layer(tds).service(http);
    let call = || {
        let mut request = get(&server, "/v1/live/bus");
        // Each closed socket keeps the only permit for a second.
        let deadline = Instant::now() + Duration::from_secs(10);
        request
            .extensions_mut()
            .insert(DeadlineAt::new(deadline.into_std()));
        service.clone().oneshot(request)
    };
    let first = call().await.expect("data").into_body().collect().await;
    first.expect("a whole body");
    server.sim().revoke_all();
    // The refused call has the only socket, and the next token request needs it.
    let second = call().await.map(drop);
    assert_eq!(second.map_err(|error| error.to_string()), Ok(()));
    assert_eq!(server.ledger().summary().token_posts, 2);
}
