//! One deadline, set in any way, with any slow part: the caller gets a response or an error by the
//! deadline, and nothing is sent after it.

use std::{num::NonZeroU32, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tds_sim::{Config, DataFault, Scripted, Server, Sim, TokenFault, When};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};
use tower_tds::{
    Client, Credentials, Deadline, Kind, RequestBody, TdsLayer,
    layers::{
        errors::{ClassifyLayer, DeadlineAt, Error, GiveUp, RetryLayer, Sent},
        into_error,
        limits::{Limiter, Limits, Quota, RequestLimitLayer},
        token::{BearerAuthLayer, Origin, TokenEndpoint, TokenSource},
    },
};

const TWO: Duration = Duration::from_secs(2);

/// The layers in their order over the simulator, under paused time.
macro_rules! stack {
    ($sim:expr, $limits:expr, $retry:expr) => {{
        let sim: Sim = $sim.clone();
        let endpoint = TokenEndpoint::keycloak("https://auth.example.org", "ServiceConnect");
        let credentials = Credentials::new(sim.client_id(), sim.client_secret());
        let tokens = TokenSource::builder(endpoint.expect("a URL"), credentials.expect("usable"));
        let origin = "https://data.example.org".parse().expect("a URL");
        ServiceBuilder::new()
            .layer($retry)
            .map_err(into_error)
            .layer(RequestLimitLayer::new(Limiter::new($limits)).detached())
            .layer(BearerAuthLayer::new(
                tokens.build(tower::util::MapRequest::new(sim.clone(), same)),
                [Origin::from_uri(&origin).expect("an origin")],
            ))
            .layer(ClassifyLayer::new())
            .map_future(Box::pin)
            .map_err(BoxError::from)
            .service(sim)
    }};
}

fn same(request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    request
}

fn get(path: &str) -> Request<Full<Bytes>> {
    let uri = format!("https://data.example.org{path}");
    Request::get(uri).body(Full::default()).expect("a request")
}

/// The outcomes of this many calls at once, and the time at which each was over.
async fn at_once<S, B, R>(
    stack: &S,
    calls: u32,
    request: impl Fn() -> Request<R>,
) -> Vec<(Duration, Result<Response<B>, Error>)>
where
    S: Service<Request<R>, Response = Response<B>, Error = Error> + Clone + Send,
    S: 'static,
    R: Send + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    let (start, mut tasks) = (Instant::now(), JoinSet::new());
    for _ in 0..calls {
        let call = stack.clone().oneshot(request());
        tasks.spawn(async move {
            let outcome = call.await;
            (start.elapsed(), outcome)
        });
    }
    tasks.join_all().await
}

fn default_limits() -> Limits {
    // The number in flight does not matter, because no body is read.
    Limits::default().in_flight(NonZeroU32::MAX)
}

#[tokio::test(start_paused = true)]
async fn each_call_is_answered_or_fails_at_its_deadline() {
    let by_layer = RetryLayer::new().deadline(TWO);
    for (place, retry) in [("layer", by_layer), ("request", RetryLayer::new())] {
        let sim = Sim::new(Config::default());
        let stack = stack!(sim, default_limits(), retry);
        let outcomes = at_once(&stack, 400, || {
            let mut request = get("/v1/live/bus");
            if place == "request" {
                request
                    .extensions_mut()
                    .insert(DeadlineAt((Instant::now() + TWO).into_std()));
            }
            request
        });
        let outcomes = outcomes.await;
        let answered = outcomes
            .iter()
            .filter(|(_, outcome)| outcome.is_ok())
            .count();
        assert!(
            (90..=150).contains(&answered),
            "{place}: {answered} of 50 a second"
        );
        for (over, outcome) in outcomes {
            assert!(over <= TWO, "{place}: {over:?}");
            if let Err(error) = outcome {
                assert_eq!(error.sent(), Sent::Never, "{error}");
                assert_eq!(error.gave_up(), Some(GiveUp::Deadline));
                assert_eq!(error.attempts(), 0, "{error}");
                let is_rejected = error.kind() == Kind::LimitTimeout;
                assert!(is_rejected || error.kind() == Kind::Timeout, "{error}");
                assert_eq!(error.waited_for().is_none(), is_rejected, "{error}");
            }
        }
        sleep(Duration::from_secs(60)).await;
        let seen = sim.ledger().arrivals();
        assert_eq!(seen.len(), answered, "{place}: what was sent was answered");
        assert!(seen.iter().all(|call| call.at <= TWO), "{place}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_token_endpoint_fails_calls_at_their_deadline() {
    let mut config = Config::default();
    let silent = TokenFault::Slow(Duration::from_secs(100_000));
    config
        .faults
        .token
        .push(Scripted::new(silent, When::Always));
    let sim = Sim::new(config);
    let stack = stack!(sim, default_limits(), RetryLayer::new().deadline(TWO));
    for (over, outcome) in at_once(&stack, 20, || get("/v1/live/bus")).await {
        let error = outcome.map(drop).expect_err("there is no token");
        assert_eq!((over, error.sent()), (TWO, Sent::Never), "{error}");
        assert!(
            error
                .waited_for()
                .is_some_and(|waited| waited.contains("a token"))
        );
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(sim.ledger().summary().data_calls, 0);
}

#[tokio::test(start_paused = true)]
async fn the_error_for_a_silent_token_endpoint_names_its_address() {
    let mut config = Config::default();
    let silent = TokenFault::Slow(Duration::from_secs(100_000));
    let always = Scripted::new(silent, When::Always);
    config.faults.token.push(always);
    let sim = Sim::new(config);
    let endpoint = TokenEndpoint::keycloak("https://auth.example.org", "ServiceConnect");
    let credentials = Credentials::new(sim.client_id(), sim.client_secret());
    let tokens = TokenSource::builder(endpoint.expect("a URL"), credentials.expect("usable"));
    let tokens = tokens.build(tower::util::MapRequest::new(sim.clone(), same));
    let origin = "https://data.example.org".parse().expect("a URL");
    let origin = Origin::from_uri(&origin).expect("an origin");
    let layer = TdsLayer::new(tokens, [origin], Limiter::new(default_limits()))
        .retry(RetryLayer::new().deadline(TWO));
    let stack = ServiceBuilder::new()
        .layer(layer)
        .map_future(Box::pin)
        .service(sim);
    let error = stack.oneshot(get("/v1/live/bus")).await.map(drop);
    let error = error.expect_err("there is no token").to_string();
    assert!(error.contains("https://auth.example.org/auth/"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn calls_behind_dripping_bodies_fail_at_their_deadline() {
    let mut config = Config::default();
    let drip = DataFault::Drip(Duration::from_secs(29));
    config.faults.data.push(Scripted::new(drip, When::Always));
    let sim = Sim::new(config);
    let three = NonZeroU32::MIN.saturating_add(2);
    let limits = Limits::default().in_flight(three);
    let stack = stack!(sim, limits, RetryLayer::new().deadline(TWO));
    let mut held = Vec::new();
    for (_, outcome) in at_once(&stack, 3, || get("/v1/live/bus")).await {
        held.push(outcome.expect("the head of a success"));
    }
    for (over, outcome) in at_once(&stack, 20, || get("/v1/live/bus")).await {
        let error = outcome.map(drop).expect_err("there is no place");
        assert_eq!((over, error.sent()), (TWO, Sent::Never), "{error}");
    }
    drop(held);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(sim.ledger().summary().data_calls, 3);
}

#[tokio::test(start_paused = true)]
async fn hanging_404_body_gives_not_found_within_any_deadline() {
    for ms in [50, 200, 900, 2_000] {
        let mut config = Config::default();
        let stall = DataFault::Stall(Duration::from_secs(100_000));
        config.faults.data.push(Scripted::new(stall, When::Always));
        let sim = Sim::new(config);
        let deadline = Duration::from_millis(ms);
        let stack = stack!(sim, default_limits(), RetryLayer::new().deadline(deadline));
        for (over, outcome) in at_once(&stack, 5, || get("/no/such/thing")).await {
            let error = outcome.map(drop).expect_err("there is no such thing");
            assert_eq!(
                (error.kind(), error.attempts()),
                (Kind::NotFound, 1),
                "{error}"
            );
            assert_eq!(error.status().map(|status| status.as_u16()), Some(404));
            assert!(over <= deadline, "{over:?}");
        }
        sleep(Duration::from_secs(60)).await;
        assert_eq!(sim.ledger().summary().data_calls, 5);
    }
}

/// Makes one call. Then revokes its token, and delays all later tokens by `slow`.
async fn revoked<S, B>(stack: &S, sim: &Sim, slow: Duration)
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Error> + Clone,
{
    let answered = stack.clone().oneshot(get("/v1/live/bus")).await;
    answered.map(drop).expect("data");
    sleep(Duration::from_secs(60)).await;
    sim.revoke_all();
    let mut faults = sim.faults();
    let slow = TokenFault::Slow(slow);
    faults.token.push(Scripted::new(slow, When::Always));
    sim.set_faults(faults);
}

#[tokio::test(start_paused = true)]
async fn refused_call_without_a_new_token_ends_at_its_deadline() {
    let sim = Sim::new(Config::default());
    let endpoint = TokenEndpoint::keycloak("https://auth.example.org", "ServiceConnect");
    let credentials = Credentials::new(sim.client_id(), sim.client_secret());
    let tokens = TokenSource::builder(endpoint.expect("a URL"), credentials.expect("usable"));
    let tokens = tokens.build(tower::util::MapRequest::new(sim.clone(), same));
    let origin = "https://data.example.org".parse().expect("a URL");
    let origin = Origin::from_uri(&origin).expect("an origin");
    let stack = ServiceBuilder::new()
        .layer(
            TdsLayer::new(tokens, [origin], Limiter::new(default_limits()))
                .retry(RetryLayer::new().deadline(TWO)),
        )
        .map_future(Box::pin)
        .service(sim.clone());
    revoked(&stack, &sim, Duration::from_secs(100_000)).await;
    for (over, outcome) in at_once(&stack, 8, || get("/v1/live/bus")).await {
        let error = outcome.map(drop).expect_err("there is no other token");
        assert_eq!(
            (error.kind(), error.gave_up()),
            (Kind::InvalidToken, Some(GiveUp::Deadline)),
            "{error}"
        );
        // A refusal is returned just before the deadline.
        assert!(
            over <= TWO && over + Duration::from_millis(20) > TWO,
            "{over:?}"
        );
        assert_eq!(error.status().map(|status| status.as_u16()), Some(401));
        let waited = error.waited_for().expect("it waited");
        assert!(waited.contains("token"), "{error}");
        assert!(error.is_retryable() && error.is_timeout(), "{error:?}");
    }
    sleep(Duration::from_secs(600)).await;
    assert_eq!(sim.ledger().summary().data_calls, 9);
}

#[tokio::test(start_paused = true)]
async fn refused_call_is_retried_with_a_late_token() {
    let sim = Sim::new(Config::default());
    let stack = stack!(sim, default_limits(), RetryLayer::new());
    revoked(&stack, &sim, Duration::from_millis(1_500)).await;
    for (_, outcome) in at_once(&stack, 20, || get("/v1/live/bus")).await {
        outcome.map(drop).expect("the next token");
    }
    let seen = sim.ledger().summary();
    assert!(seen.data_calls <= 41 && seen.token_posts == 2, "{seen:?}");
}

#[tokio::test]
async fn no_call_over_sockets_begins_after_its_deadline() {
    let server = Server::start(Config::default()).await.expect("free ports");
    let credentials = Credentials::new(server.client_id(), server.client_secret());
    let client = Client::builder(
        server.auth_url(),
        server.base_url(),
        credentials.expect("usable"),
    );
    let five = Quota::per_second(NonZeroU32::MIN.saturating_add(19));
    let client = client.loopback_http().limits(Limits::new(five)).build();
    let client = client.expect("loopback is let through");
    let second = Deadline::from(Duration::from_secs(1));
    let url = format!("{}/v1/live/bus", server.base_url());
    let outcomes = at_once(&client, 400, || {
        let request = Request::get(&url).extension(second);
        request.body(RequestBody::default()).expect("a request")
    });
    let outcomes = outcomes.await;
    let failed = outcomes
        .iter()
        .filter_map(|(_, outcome)| outcome.as_ref().err());
    for error in failed.clone() {
        assert_eq!(error.gave_up(), Some(GiveUp::Deadline), "{error:?}");
        assert!(error.waited_for().is_some(), "{error:?}");
    }
    assert!(failed.count() > 300);
    // Calls in flight at the deadline still reach the service.
    let in_progress = || server.ledger().summary().in_progress;
    sleep(Duration::from_millis(100)).await;
    while in_progress() > 0 {
        sleep(Duration::from_millis(20)).await;
    }
    let then = server.ledger().summary().data_calls;
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(server.ledger().summary().data_calls, then);
}

#[test]
fn call_made_without_a_runtime_runs_where_it_is_polled() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let server = runtime.block_on(Server::start(Config::default()));
    let server = server.expect("free ports");
    let credentials = Credentials::new(server.client_id(), server.client_secret());
    let client = Client::builder(
        server.auth_url(),
        server.base_url(),
        credentials.expect("usable"),
    );
    let mut client = client.loopback_http().build().expect("loopback");
    let request = Request::get(format!("{}/v1/live/bus", server.base_url()));
    let call = client.call(request.body(RequestBody::default()).expect("a request"));
    let response = runtime.block_on(call).expect("data");
    assert_eq!(response.status(), 200);
}
