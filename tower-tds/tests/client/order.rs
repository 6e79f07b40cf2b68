//! Layers in any order, with nothing between them. What does not compile is in `compile_errors.rs`.

use std::{io, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tds_sim::{Config, Faults, Scripted, Sim, TokenFault, When};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::sleep,
};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn, util::MapRequest};
use tower_tds::{
    Error, Kind, Limiter, Limits,
    layers::{
        errors::{ClassifyLayer, RetryLayer},
        limits::RequestLimitLayer,
        token::{BearerAuthLayer, Credentials, Origin, TokenEndpoint, TokenSource},
    },
};

/// The service, and the layer that puts its token on requests.
fn service() -> (Sim, BearerAuthLayer) {
    of(Config::default())
}

fn of(config: Config) -> (Sim, BearerAuthLayer) {
    let sim = Sim::new(config);
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
    at("/v1/live/bus")
}

fn at(path: &str) -> Request<Full<Bytes>> {
    let request = Request::get(format!("https://data.example.org{path}"));
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

/// A stack, as a call on a runtime of several threads.
type Call = Box<dyn Fn(Request<Full<Bytes>>) -> JoinHandle<Result<StatusCode, Error>>>;

/// Spawns each call of a stack.
macro_rules! spawning {
    ($stack:expr) => {{
        let stack = $stack;
        Box::new(move |request| {
            let stack = stack.clone();
            tokio::spawn(async move {
                let response: Response<_> = stack.oneshot(request).await?;
                Ok(response.status())
            })
        }) as Call
    }};
}

/// The orders, by name, and whether a layer reads the message of the service.
fn orders(sim: &Sim, bearer: &BearerAuthLayer) -> Vec<(&'static str, bool, Call)> {
    let retry = || ServiceBuilder::new().layer(RetryLayer::new());
    let (bearer, classify) = (|| bearer.clone(), ClassifyLayer::new);
    let sim = || sim.clone();
    vec![
        (
            "limit, bearer, classify",
            true,
            spawning!(
                retry()
                    .layer(limit())
                    .layer(bearer())
                    .layer(classify())
                    .service(sim())
            ),
        ),
        (
            "limit, classify, bearer",
            true,
            spawning!(
                retry()
                    .layer(limit())
                    .layer(classify())
                    .layer(bearer())
                    .service(sim())
            ),
        ),
        (
            "bearer, limit, classify",
            true,
            spawning!(
                retry()
                    .layer(bearer())
                    .layer(limit())
                    .layer(classify())
                    .service(sim())
            ),
        ),
        (
            "bearer, classify, limit",
            true,
            spawning!(
                retry()
                    .layer(bearer())
                    .layer(classify())
                    .layer(limit())
                    .service(sim())
            ),
        ),
        (
            "classify, limit, bearer",
            true,
            spawning!(
                retry()
                    .layer(classify())
                    .layer(limit())
                    .layer(bearer())
                    .service(sim())
            ),
        ),
        (
            "classify, bearer, limit",
            true,
            spawning!(
                retry()
                    .layer(classify())
                    .layer(bearer())
                    .layer(limit())
                    .service(sim())
            ),
        ),
        (
            "limit, bearer",
            false,
            spawning!(retry().layer(limit()).layer(bearer()).service(sim())),
        ),
        (
            "bearer, limit",
            false,
            spawning!(retry().layer(bearer()).layer(limit()).service(sim())),
        ),
        (
            "bearer, classify",
            true,
            spawning!(retry().layer(bearer()).layer(classify()).service(sim())),
        ),
        (
            "tower's own between them",
            true,
            spawning!(
                retry()
                    .layer(limit())
                    .layer(bearer())
                    .layer(classify())
                    .concurrency_limit(9)
                    .timeout(Duration::from_secs(9))
                    .service(sim())
            ),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_order_retries_and_keeps_what_the_service_said() {
    let mut all = JoinSet::new();
    for n in 0..10 {
        all.spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(one_order(n));
        });
    }
    while let Some(order) = all.join_next().await {
        order.expect("the order works");
    }
}

/// Makes calls through one order: the token endpoint is down at first, and one call too many gets a 423.
async fn one_order(n: usize) {
    let mut config = Config::default();
    config.rate = 1;
    let (sim, bearer) = of(config);
    let (name, reads, call) = orders(&sim, &bearer).swap_remove(n);
    let mut down = Faults::default();
    down.token
        .push(Scripted::new(TokenFault::Unavailable, When::Always));
    sim.set_faults(down);
    let first = call(get());
    sleep(Duration::from_millis(300)).await;
    sim.set_faults(Faults::default());
    let status = async |call: JoinHandle<_>| call.await.expect("no panic");
    assert_eq!(status(first).await.expect(name), StatusCode::OK, "{name}");
    let [second, third] = [call(get()), call(get())];
    assert_eq!(status(second).await.expect(name), StatusCode::OK, "{name}");
    assert_eq!(status(third).await.expect(name), StatusCode::OK, "{name}");
    sleep(Duration::from_millis(1_100)).await;
    let error = status(call(at("/no/such/thing"))).await.expect_err(name);
    assert_eq!(
        (error.kind(), error.message().is_some()),
        (Kind::NotFound, reads),
        "{name}"
    );

    let seen = sim.ledger().summary();
    let count = |status| seen.by_status.get(&status).copied().unwrap_or_default();
    assert!(
        seen.token_posts >= 2,
        "{name}: the first ones were refused: {seen:?}"
    );
    assert_eq!(
        (count(200), count(401)),
        (3, 0),
        "{name}: nothing was sent without a token"
    );
    assert!(count(423) >= 1, "{name}: {seen:?}");
}

/// The `Debug` of an HTTP client may show the query of its URL, and what unwraps an error prints it.
#[tokio::test(start_paused = true)]
async fn debug_of_the_errors_of_limits_and_token_shows_no_query() {
    let failing = service_fn(async |_: Request<Full<Bytes>>| {
        let text = "no route to https://me:CANARY@data.example.org/v1?key=CANARY";
        Err::<Response<Full<Bytes>>, _>(io::Error::other(text))
    });
    let (_sim, bearer) = service();
    let limited = limit().layer(failing).oneshot(get()).await;
    let limited = limited.expect_err("it fails");
    let signed = bearer.layer(failing).oneshot(get()).await;
    let signed = signed.expect_err("it fails");
    for debug in [
        format!("{limited:?} {limited:#?} {limited} {limited:#}"),
        format!("{signed:?} {signed:#?} {signed} {signed:#}"),
    ] {
        assert!(debug.contains("data.example.org/v1"), "{debug}");
        assert!(!debug.contains("CANARY"), "{debug}");
    }
}
