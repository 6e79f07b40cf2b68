//! One deadline, set in any way, with any slow part: the caller gets a response or an error by the
//! deadline, and nothing is sent after it.

use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Request;
use tds_sim::{Config, Sim};
use tokio::time::{Instant, sleep};
use tower::{Service as _, ServiceExt as _};
use tower_tds::{
    Deadline, Error, Kind, Limits, Quota, RequestBody,
    layers::errors::{DeadlineAt, GiveUp, RetryLayer, Sent},
};

use crate::client::world::{
    self, Built as _, PATH, Stack, at_once, count, get, read, served, stack, start, until,
};

const TWO: Duration = Duration::from_secs(2);

/// The whole layer for calls whose bodies are not read, so that the number in flight does not matter.
fn unread(sim: &Sim, retry: RetryLayer) -> Stack {
    stack(sim, retry, Limits::default().in_flight(count(u32::MAX)))
}

/// The outcomes of this many calls at once, and the time at which each was over.
async fn timed<T: Send + 'static>(
    calls: u32,
    call: impl Fn() -> BoxFuture<'static, Result<T, Error>>,
) -> Vec<(Duration, Result<(), Error>)> {
    let start = Instant::now();
    let timed = |call: BoxFuture<'static, Result<T, Error>>| {
        Box::pin(async move {
            let ended = call.await.map(drop);
            (start.elapsed(), ended)
        }) as BoxFuture<'static, _>
    };
    at_once((0..calls).map(|_| timed(call()))).await
}

#[tokio::test(start_paused = true)]
async fn each_call_is_answered_or_fails_at_its_deadline() {
    let by_layer = RetryLayer::new().deadline(TWO);
    for (place, retry) in [("layer", by_layer), ("request", RetryLayer::new())] {
        let sim = Sim::new(Config::default());
        let stack = unread(&sim, retry);
        let outcomes = timed(400, || {
            let mut request = get(PATH);
            if place == "request" {
                let ends = DeadlineAt::new((Instant::now() + TWO).into_std());
                request.extensions_mut().insert(ends);
            }
            Box::pin(stack.clone().oneshot(request))
        });
        let outcomes = outcomes.await;
        let answered = outcomes.iter().filter(|(_, ended)| ended.is_ok()).count();
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
    let stack = unread(&sim, RetryLayer::new().deadline(TWO));
    let call = || {
        Box::pin(stack.clone().oneshot(get(PATH)))
            as BoxFuture<'static, Result<http::Response<world::Body>, Error>>
    };
    call().await.expect("data");
    sleep(Duration::from_secs(60)).await;
    sim.revoke_all();
    sim.set_faults(world::faults(&["token=slow:100000s"]));
    for (over, outcome) in timed(8, call).await {
        let error = outcome.expect_err("there is no other token");
        let gave_up = (error.kind(), error.gave_up());
        assert_eq!(
            gave_up,
            (Kind::InvalidToken, Some(GiveUp::Deadline)),
            "{error}"
        );
        // A refusal is returned just before the deadline.
        let is_just_before = over <= TWO && over + Duration::from_millis(20) > TWO;
        assert!(is_just_before, "{over:?}");
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
    let server = start(Config::default()).await;
    let limits = Limits::new(Quota::per_second(count(20)));
    let client = world::builder(&server).limits(limits).built();
    let second = Deadline::from(Duration::from_secs(1));
    let url = format!("{}{PATH}", server.base_url());
    let outcomes = timed(400, || {
        let request = Request::get(&url).extension(second);
        let request = request.body(RequestBody::default()).expect("a request");
        Box::pin(client.clone().oneshot(request))
    });
    let outcomes = outcomes.await;
    let failed: Vec<_> = outcomes
        .into_iter()
        .filter_map(|(_, ended)| ended.err())
        .collect();
    for error in &failed {
        assert_eq!(error.gave_up(), Some(GiveUp::Deadline), "{error:?}");
        assert!(error.waited_for().is_some(), "{error:?}");
    }
    assert!(failed.len() > 300);
    // Calls in flight at the deadline still reach the service.
    sleep(Duration::from_millis(100)).await;
    until(|| server.ledger().summary().in_progress == 0).await;
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
    let (server, mut client) = runtime.block_on(served());
    let request = Request::get(format!("{}{PATH}", server.base_url()));
    let call = client.call(request.body(RequestBody::default()).expect("a request"));
    let response = runtime.block_on(call).expect("data");
    assert_eq!(response.status(), 200);
    let called = runtime.block_on(read(client.get(PATH)));
    called.expect("data");
}
