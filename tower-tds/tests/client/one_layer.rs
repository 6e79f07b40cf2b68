//! The whole stack as one layer, over other HTTP clients and under tower's own layers.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::AUTHORIZATION};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use tds_sim::{Config, Server};
use tokio::{task::JoinSet, time::Instant};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_tds::{
    Credentials, Kind, Limiter, Limits, TdsLayer,
    layers::{
        errors::{DeadlineAt, RetryLayer},
        limits::{ConnectionLimitLayer, RequestLimitLayer},
        token::{Origin, TokenEndpoint, TokenSource},
    },
};

type Http = legacy::Client<<ConnectionLimitLayer as Layer<HttpConnector>>::Service, Full<Bytes>>;

/// A layer for the simulated service, and hyper-util's client to put it around.
async fn setup() -> (Server, TdsLayer, Http) {
    within(Limits::default(), usize::MAX).await
}

/// The same, with a client that keeps `idle` idle sockets.
async fn within(limits: Limits, idle: usize) -> (Server, TdsLayer, Http) {
    let server = Server::start(Config::default()).await.expect("a free port");
    let limiter = Limiter::new(limits);
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(HttpConnector::new());
    let http = legacy::Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(idle)
        .build(connector);
    let endpoint = TokenEndpoint::keycloak(server.auth_url(), "ServiceConnect");
    let credentials = Credentials::new(server.client_id(), server.client_secret());
    let counted = RequestLimitLayer::new(limiter.first_in_line()).layer(http.clone());
    let tokens = TokenSource::builder(endpoint.expect("loopback"), credentials.expect("usable"));
    let tokens = tokens.build(counted);
    let base = server.base_url().parse().expect("an address");
    let origin = Origin::loopback(&base).expect("loopback");
    (server, TdsLayer::new(tokens, [origin], limiter), http)
}

fn get(server: &Server, path: &str) -> Request<Full<Bytes>> {
    let url = format!("{}{path}", server.base_url());
    Request::get(url).body(Full::default()).expect("a request")
}

#[tokio::test]
async fn tds_layer_over_hyper_util_is_the_whole_stack() {
    let (server, tds, http) = setup().await;
    let service = ServiceBuilder::new().layer(tds).service(http);
    let mut calls = JoinSet::new();
    for _ in 0..120 {
        let call = service.clone().oneshot(get(&server, "/v1/live/bus"));
        // A body holds a place until it is read.
        calls.spawn(async move { call.await.expect("data").into_body().collect().await });
    }
    for body in calls.join_all().await {
        let body = body.expect("a whole body").to_bytes();
        assert!(body.starts_with(b"{\"name\""));
    }
    // A token that dies costs no call: the 401 is read, and the call replayed.
    server.sim().revoke_all();
    let answer = service.clone().oneshot(get(&server, "/v1/live/bus")).await;
    assert_eq!(answer.expect("data").status(), StatusCode::OK);
    let error = service.oneshot(get(&server, "/no/such/thing")).await;
    assert_eq!(error.map(drop).expect_err("nothing").kind(), Kind::NotFound);
    let seen = server.ledger().summary();
    assert_eq!(seen.token_posts, 2);
    assert!(
        seen.largest_second <= 50 && seen.peak_sockets <= 60,
        "{seen:?}"
    );
    assert_eq!(seen.by_status.get(&423), None);
}

#[tokio::test]
async fn tds_layer_works_under_tower_layers_and_boxed() {
    let (server, tds, http) = setup().await;
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
async fn tds_layer_works_over_any_request_service() {
    let (server, tds, _) = setup().await;
    let asked = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&asked);
    let asks = service_fn(move |request: Request<Full<Bytes>>| {
        let first = counted.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            assert!(request.headers().contains_key(AUTHORIZATION));
            let mut response = Response::new(Full::<Bytes>::from("data"));
            if first {
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            }
            Ok::<_, Infallible>(response)
        }
    });
    // A detached future is moved.
    let service = ServiceBuilder::new()
        .layer(tds)
        .map_future(Box::pin)
        .service(asks);
    let answer = service.oneshot(get(&server, "/v1/live/bus")).await;
    assert_eq!(answer.expect("the second attempt").status(), StatusCode::OK);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
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
            .insert(DeadlineAt(deadline.into_std()));
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
