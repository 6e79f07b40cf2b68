//! Layers in another order that compiles: the stack still works, or a debug assertion finds it.
//! What does not compile is in `compile_errors.rs`.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use tds_sim::{Config, Sim};
use tokio::task::JoinSet;
use tower::{ServiceBuilder, ServiceExt, util::MapRequest};
use tower_tds::{
    Limiter, Limits,
    layers::{
        errors::{ClassifyLayer, RetryLayer},
        limits::RequestLimitLayer,
        token::{BearerAuthLayer, Credentials, Origin, TokenEndpoint, TokenSource},
    },
};

/// The service, and the layer that puts its token on requests.
fn service() -> (Sim, BearerAuthLayer) {
    let sim = Sim::new(Config::default());
    let endpoint = TokenEndpoint::keycloak("https://auth.example.org", "ServiceConnect");
    let credentials = Credentials::new(sim.client_id(), sim.client_secret()).expect("usable");
    let tokens = TokenSource::builder(endpoint.expect("a URL"), credentials);
    let same = |request: Request<Full<Bytes>>| request;
    let tokens = tokens.build(MapRequest::new(sim.clone(), same));
    let origin = Origin::from_uri(&"https://data.example.org".parse().expect("a URL"));
    let bearer = BearerAuthLayer::new(tokens, [origin.expect("an origin")]);
    (sim, bearer)
}

/// Limits that read heads.
fn limit() -> RequestLimitLayer {
    RequestLimitLayer::new(Limiter::new(Limits::default()))
}

fn get() -> Request<Full<Bytes>> {
    let request = Request::get("https://data.example.org/v1/live/bus");
    request.body(Full::default()).expect("a request")
}

#[tokio::test(start_paused = true)]
async fn token_and_limits_work_below_classification() {
    let (sim, bearer) = service();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new())
        .layer(ClassifyLayer::new())
        .layer(bearer)
        .layer(limit())
        .service(sim.clone());
    let mut calls = JoinSet::new();
    for _ in 0..120 {
        let call = stack.clone().oneshot(get());
        calls.spawn(async move { call.await.expect("data").into_body().collect().await });
    }
    for body in calls.join_all().await {
        body.expect("a whole body");
    }
    sim.revoke_all();
    let healed = stack.oneshot(get()).await;
    healed.expect("the refused one waits for the next token");
    let seen = sim.ledger().summary();
    assert_eq!((seen.token_posts, seen.by_status.get(&423)), (2, None));
    assert!(seen.largest_second <= 50, "{seen:?}");
}
