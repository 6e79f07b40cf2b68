//! One deadline, set in any way, with any slow part: the caller gets a response or an error by the
//! deadline, and nothing is sent after it.

use std::{num::NonZeroU32, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use tds_sim::{Config, Scripted, Sim, TokenFault, When};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_tds::{
    Credentials, Deadline, Kind, RequestBody, TdsLayer,
    layers::{
        errors::{DeadlineAt, Error, GiveUp, RetryLayer, Sent},
        limits::{Limiter, Limits, Quota},
        token::{Origin, TokenEndpoint, TokenSource},
    },
};

use crate::client::sim;

const TWO: Duration = Duration::from_secs(2);

/// The whole layer over the simulator, under paused time, within these limits.
pub(crate) fn stack_within(
    sim: &Sim,
    retry: RetryLayer,
    limits: Limits,
) -> impl Service<
    Request<Full<Bytes>>,
    Response = Response<impl Body<Data: Send, Error: Send> + Send + 'static>,
    Error = Error,
    Future: Send,
> + Clone
+ Send
+ 'static {
    let endpoint = TokenEndpoint::keycloak("https://auth.example.org", "ServiceConnect");
    let credentials = Credentials::new(sim.client_id(), sim.client_secret());
    let tokens = TokenSource::builder(endpoint.expect("a URL"), credentials.expect("usable"));
    let tokens = tokens.build::<_, Full<Bytes>, _>(sim.clone());
    let origin = "https://data.example.org".parse().expect("a URL");
    let origin = Origin::from_uri(&origin).expect("an origin");
    ServiceBuilder::new()
        .layer(TdsLayer::new(tokens, [origin], Limiter::new(limits)).retry(retry))
        .map_future(Box::pin)
        .service(sim.clone())
}

/// The same for calls whose bodies are not read, so that the number in flight does not matter.
fn stack(
    sim: &Sim,
    retry: RetryLayer,
) -> impl Service<
    Request<Full<Bytes>>,
    Response = Response<impl Send + 'static>,
    Error = Error,
    Future: Send,
> + Clone
+ Send
+ 'static {
    stack_within(sim, retry, Limits::default().in_flight(NonZeroU32::MAX))
}

pub(crate) fn get(path: &str) -> Request<Full<Bytes>> {
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

#[tokio::test(start_paused = true)]
async fn each_call_is_answered_or_fails_at_its_deadline() {
    let by_layer = RetryLayer::new().deadline(TWO);
    for (place, retry) in [("layer", by_layer), ("request", RetryLayer::new())] {
        let sim = Sim::new(Config::default());
        let stack = stack(&sim, retry);
        let outcomes = at_once(&stack, 400, || {
            let mut request = get("/v1/live/bus");
            if place == "request" {
                request
                    .extensions_mut()
                    .insert(DeadlineAt::new((Instant::now() + TWO).into_std()));
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
async fn refused_call_without_a_new_token_ends_at_its_deadline() {
    let sim = Sim::new(Config::default());
    let stack = stack(&sim, RetryLayer::new().deadline(TWO));
    let answered = stack.clone().oneshot(get("/v1/live/bus")).await;
    answered.map(drop).expect("data");
    sleep(Duration::from_secs(60)).await;
    sim.revoke_all();
    let mut faults = sim.faults();
    let slow = TokenFault::Slow(Duration::from_secs(100_000));
    faults.token.push(Scripted::new(slow, When::Always));
    sim.set_faults(faults);
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

#[tokio::test]
async fn no_call_over_sockets_begins_after_its_deadline() {
    let server = sim::start(Config::default()).await;
    let five = Quota::per_second(NonZeroU32::MIN.saturating_add(19));
    let client = sim::builder(&server).limits(Limits::new(five)).build();
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
    let server = runtime.block_on(sim::start(Config::default()));
    let mut client = sim::client(&server);
    let request = Request::get(format!("{}/v1/live/bus", server.base_url()));
    let call = client.call(request.body(RequestBody::default()).expect("a request"));
    let response = runtime.block_on(call).expect("data");
    assert_eq!(response.status(), 200);
}
