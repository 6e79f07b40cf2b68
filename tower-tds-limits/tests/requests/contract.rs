//! The `Service` contract: the readied instance is the one called, and readiness is given back.

mod bodies;
mod connect;
mod probe;

use std::{error::Error as _, num::NonZeroU32, time::Duration};

use http::Request;
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep};
use tokio_test::{assert_pending, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_tds_limits::{
    Limiter, Limits, Outcome, Proof, Quota, RequestLimit, RequestLimitLayer, Rules,
};
use tower_tds_outcome::Cause;

use self::probe::{Probe, ProbeError};
use crate::requests::service::request;

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a count is not zero")
}

/// Limits of this many requests in any second, by the simplest of the rules.
fn per_second(n: u32) -> Limits {
    Limits::new(Quota::per_second(count(n))).rules(Rules::window())
}

/// Limits of `permits` at a time, `permits` in any second, and `permits` sockets.
fn limiter(permits: u32) -> Limiter {
    let limits = per_second(permits).in_flight(count(permits));
    Limiter::new(limits.connections(count(permits)))
}

fn limited(limiter: &Limiter, probe: &Probe) -> RequestLimit<Probe> {
    ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()))
        .service(probe.clone())
}

#[tokio::test(start_paused = true)]
async fn inner_readiness_error_is_returned_and_takes_no_permit() {
    let probe = Probe::new();
    probe.fail_readiness();
    let limiter = limiter(1);
    let service = limited(&limiter, &probe);
    let error = service
        .oneshot(request())
        .await
        .expect_err("the probe fails");
    let below = error.source().expect("the error below");
    assert!(below.is::<ProbeError>());
    assert_eq!(limiter.snapshot().in_flight, 0);
}

/// The service and its clones can be called at any time, and nothing is left behind.
#[tokio::test(start_paused = true)]
async fn the_request_limit_keeps_the_contract() {
    let (limiter, probe) = (limiter(50), Probe::new());
    let mut service = limited(&limiter, &probe);
    for calls in 1..=5 {
        service.ready().await.expect("it is always ready");
        let ready = service.ready().await.expect("it still is");
        let answer = ready.call(request()).await.expect("the probe answers");
        drop(answer);
        assert_eq!(probe.calls(), calls);
    }
    let answer = service.clone().oneshot(request()).await;
    drop(answer.expect("the probe answers"));
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.in_flight, snapshot.waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn body_read_to_its_end_frees_the_slot_once() {
    let limiter = limiter(50);
    let service = limited(&limiter, &Probe::new());
    // Another call is in flight: if the slot were freed twice, its slot would be free.
    let other = service.clone().oneshot(request()).await;
    let response = service.oneshot(request()).await.expect("an answer");
    assert_eq!(limiter.snapshot().in_flight, 2);
    let mut body = response.into_body();
    body.frame().await.expect("one frame").expect("data");
    assert_eq!(limiter.snapshot().in_flight, 1);
    drop(body);
    assert_eq!(limiter.snapshot().in_flight, 1, "freed once");
    drop(other);
    assert_eq!(limiter.snapshot().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn lost_request_stays_live_for_lost_after_and_the_interval() {
    let chosen = per_second(1).lost_after(Duration::from_secs(3));
    assert_eq!(held_when_lost(chosen).await.as_millis(), 3_000 + 1_002);
    let by_default = per_second(1);
    assert_eq!(held_when_lost(by_default).await.as_millis(), 10_000 + 1_002);
}

async fn held_when_lost(limits: Limits) -> Duration {
    let limiter = Limiter::new(limits);
    let probe = Probe::new();
    probe.never_answer();
    let layer = RequestLimitLayer::new(limiter.clone()).response_timeout(Duration::from_secs(1));
    let lost = layer.layer(probe.clone()).oneshot(request()).await;
    lost.expect_err("no answer");
    let start = Instant::now();
    assert_eq!(limiter.snapshot().live, 1);

    probe.answer_again();
    drop(limited(&limiter, &probe).oneshot(request()).await);
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn unsent_requests_take_no_permit() {
    let probe = Probe::new();
    probe.fail_calls();
    let limiter = limiter(1);
    let service = ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()))
        .map_err(|error: ProbeError| Cause::new(Outcome::Unsent).over(error))
        .service(probe.clone());
    let start = Instant::now();
    for _ in 0..10 {
        let error = service
            .clone()
            .oneshot(request())
            .await
            .expect_err("the probe fails");
        assert!(error.source().expect("the error below").is::<Cause>());
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(limiter.snapshot().live, 0);
}

#[tokio::test(start_paused = true)]
async fn proof_end_frees_the_permit_after_the_body() {
    let limits = per_second(1).proof(Proof::End);
    let limiter = Limiter::new(limits);
    let service = limited(&limiter, &Probe::new());
    let response = service.clone().oneshot(request()).await.expect("an answer");
    sleep(Duration::from_secs(5)).await;
    let start = Instant::now();
    let mut next = task::spawn(service.oneshot(request()));
    assert_pending!(next.poll(), "the body is still coming");
    response.into_body().collect().await.expect("a whole body");
    next.await.expect("an answer");
    assert_eq!(start.elapsed(), Duration::from_millis(1_002));
}

#[tokio::test(start_paused = true)]
async fn calls_without_inner_readiness_keep_their_place() {
    use tower::limit::ConcurrencyLimit;
    let probe = Probe::new();
    let limiter = limiter(1);
    let layer = RequestLimitLayer::new(limiter.clone());
    let mut full = ConcurrencyLimit::new(probe.clone(), 1);
    let ready = ServiceExt::<Request<_>>::ready(&mut full).await;
    ready.expect("the only slot");
    let waits = layer.layer(full.clone()).oneshot(request());
    let mut waits = task::spawn(waits);
    assert_pending!(waits.poll(), "the inner service is not ready");
    assert_eq!(limiter.snapshot().waiting, 1);
    let mut first = limited(&limiter, &probe)
        .oneshot(request())
        .await
        .expect("it passes");
    first
        .body_mut()
        .frame()
        .await
        .expect("one frame")
        .expect("data");
    let mut second = task::spawn(limited(&limiter, &probe).oneshot(request()));
    assert_pending!(second.poll(), "the probe is ready at the second poll");
    assert_pending!(second.poll(), "one a second");
    drop(full);
    assert!(waits.is_woken());
    assert_pending!(waits.poll(), "the probe is ready at the second poll");
    assert_pending!(waits.poll(), "one a second");
    sleep(Duration::from_millis(1_003)).await;
    assert!(waits.is_woken() && !second.is_woken(), "it came first");
}
