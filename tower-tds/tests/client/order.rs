//! Layers in any order, with nothing between them. What does not compile is in `compile_errors.rs`.

use std::{io, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tds_sim::{Config, Sim};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::sleep,
};
use tower::{
    Layer, ServiceBuilder, ServiceExt, limit::ConcurrencyLimitLayer, service_fn,
    timeout::TimeoutLayer,
};
use tower_tds::{
    Error, Kind, Limiter, Limits,
    layers::{
        errors::{ClassifyLayer, RetryLayer},
        limits::RequestLimitLayer,
        token::BearerAuthLayer,
    },
};

use crate::client::world::{PATH, config, faults, get, origin, tokens};

/// Puts the token of the service on requests.
fn bearer(sim: &Sim) -> BearerAuthLayer {
    BearerAuthLayer::new(tokens(sim), [origin()])
}

/// Limits that read heads.
fn limit() -> RequestLimitLayer {
    RequestLimitLayer::new(Limiter::new(Limits::default()))
}

/// A stack, as a call on a runtime of several threads.
type Call = Box<dyn Fn(Request<Full<Bytes>>) -> JoinHandle<Result<StatusCode, Error>> + Send>;

/// The names of these layers, and a stack of them that spawns each call.
macro_rules! order {
    ($sim:expr; $($layer:expr),*) => {{
        let stack = ServiceBuilder::new().layer(RetryLayer::new())$(.layer($layer))*;
        let stack = stack.service($sim.clone());
        let call = move |request| {
            let stack = stack.clone();
            tokio::spawn(async move {
                let response: Response<_> = stack.oneshot(request).await?;
                Ok(response.status())
            })
        };
        (stringify!($($layer),*), Box::new(call) as Call)
    }};
}

fn orders(sim: &Sim) -> [(&'static str, Call); 10] {
    let (bearer, classify) = (bearer(sim), ClassifyLayer::new);
    let bearer = || bearer.clone();
    // tower's own.
    let few = ConcurrencyLimitLayer::new(9);
    let soon = TimeoutLayer::new(Duration::from_secs(9));
    [
        order!(sim; limit(), bearer(), classify()),
        order!(sim; limit(), classify(), bearer()),
        order!(sim; bearer(), limit(), classify()),
        order!(sim; bearer(), classify(), limit()),
        order!(sim; classify(), limit(), bearer()),
        order!(sim; classify(), bearer(), limit()),
        order!(sim; limit(), bearer()),
        order!(sim; bearer(), limit()),
        order!(sim; bearer(), classify()),
        order!(sim; limit(), bearer(), classify(), few, soon),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_order_retries_and_keeps_what_the_service_said() {
    let orders: JoinSet<_> = (0..10).map(one_order).collect();
    orders.join_all().await;
}

/// Makes calls through one order: the token endpoint is down at first, and one call too many gets a 423.
async fn one_order(n: usize) {
    let sim = Sim::new(config(|config| config.rate = 1));
    let (name, call) = orders(&sim).into_iter().nth(n).expect("there are ten");
    // Where no layer reads the message of the service, there is none.
    let reads = name.contains("classify");
    sim.set_faults(faults(&["token=503"]));
    let first = call(get(PATH));
    sleep(Duration::from_millis(300)).await;
    sim.set_faults(faults(&[]));
    let status = async |call: JoinHandle<_>| call.await.expect("no panic");
    assert_eq!(status(first).await.expect(name), StatusCode::OK, "{name}");
    for call in [call(get(PATH)), call(get(PATH))] {
        assert_eq!(status(call).await.expect(name), StatusCode::OK, "{name}");
    }
    sleep(Duration::from_millis(1_100)).await;
    // The refused call waits for the next token, whether a response or an error shows that it needs one.
    sim.revoke_all();
    let healed = status(call(get(PATH))).await;
    assert_eq!(healed.expect(name), StatusCode::OK, "{name}");
    sleep(Duration::from_millis(1_100)).await;
    let error = status(call(get("/no/such/thing"))).await.expect_err(name);
    let told = (error.kind(), error.message().is_some());
    assert_eq!(told, (Kind::NotFound, reads), "{name}");

    let seen = sim.ledger().summary();
    let count = |status| seen.by_status.get(&status).copied().unwrap_or_default();
    // The first token requests were refused, nothing was sent without a token, and the dead one was sent once.
    assert!(seen.token_posts >= 3, "{name}: {seen:?}");
    assert_eq!((count(200), count(401)), (4, 1), "{name}");
    assert!(count(423) >= 1, "{name}: {seen:?}");
}

/// The `Debug` of an HTTP client may show the query of its URL, and what unwraps an error prints it.
#[tokio::test(start_paused = true)]
async fn debug_of_the_errors_of_limits_and_token_shows_no_query() {
    let failing = service_fn(async |_: Request<Full<Bytes>>| {
        let text = "no route to https://me:CANARY@data.example.org/v1?key=CANARY";
        Err::<Response<Full<Bytes>>, _>(io::Error::other(text))
    });
    let sim = Sim::new(Config::default());
    let limited = limit().layer(failing).oneshot(get(PATH)).await;
    let limited = limited.expect_err("it fails");
    let signed = bearer(&sim).layer(failing).oneshot(get(PATH)).await;
    let signed = signed.expect_err("it fails");
    for debug in [
        format!("{limited:?} {limited:#?} {limited} {limited:#}"),
        format!("{signed:?} {signed:#?} {signed} {signed:#}"),
    ] {
        assert!(debug.contains("data.example.org/v1"), "{debug}");
        assert!(!debug.contains("CANARY"), "{debug}");
    }
}
