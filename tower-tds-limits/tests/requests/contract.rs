//! The `Service` contract: the readied instance is the one called, and readiness is given back.

mod bodies;
mod connect;
mod probe;
mod services;

use std::{error::Error as _, num::NonZeroU32, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use tokio::time::{Instant, sleep};
use tokio_test::{assert_pending, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_tds_limits::{
    Limiter, Limits, Outcome, Proof, Quota, RequestLimit, RequestLimitLayer, Rules,
};
use tower_tds_outcome::Cause;

use self::probe::{Probe, ProbeError};

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

fn request() -> Request<Empty<Bytes>> {
    Request::new(Empty::new())
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

#[tokio::test(start_paused = true)]
async fn max_wait_error_is_returned_by_the_response_future() {
    let probe = Probe::new();
    let limits = per_second(1).max_wait(Duration::from_millis(300));
    let mut service = limited(&Limiter::new(limits), &probe);
    let body = service.ready().await.expect("ready").call(request()).await;

    for _ in 0..2 {
        let outcome = service
            .ready()
            .await
            .expect("`poll_ready` errors are final, and this one is not")
            .call(request())
            .await;
        let Err(error) = outcome else {
            panic!("the wait is over its bound");
        };
        assert!(error.is_timeout());
    }
    assert_eq!(probe.calls(), 1, "nothing was sent");
    drop(body);
}

#[tokio::test(start_paused = true)]
async fn body_read_to_its_end_frees_the_place_once() {
    let limiter = limiter(50);
    let service = limited(&limiter, &Probe::new());
    // Another call is in flight: if the place were freed twice, its place would be free.
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
async fn a_body_without_content_frees_the_place_with_the_head() {
    let limiter = limiter(50);
    let service = ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()))
        .service_fn(async |_: Request<Empty<Bytes>>| {
            Ok::<_, std::convert::Infallible>(Response::new(Empty::<Bytes>::new()))
        });
    let response = service.oneshot(request()).await.expect("an answer");
    assert_eq!(limiter.snapshot().in_flight, 0);
    drop(response);
}

#[tokio::test(start_paused = true)]
async fn call_dropped_at_any_poll_leaves_only_sent_permits() {
    for polls in 0..8 {
        let limiter = limiter(1);
        let probe = Probe::new();
        let call = limited(&limiter, &probe).oneshot(request());
        let mut call = task::spawn(call);
        for _ in 0..polls {
            if call.poll().is_ready() {
                break;
            }
        }
        drop(call);
        // A task completes what may have been sent.
        limiter.idle().await;
        let snapshot = limiter.snapshot();
        assert_eq!(snapshot.waiting, 0, "after {polls} polls");
        let live = probe.calls();
        assert_eq!(snapshot.live, live, "only what was sent stays counted");
    }
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
    let layer = RequestLimitLayer::new(limiter.clone()).answer_timeout(Duration::from_secs(1));
    let lost = layer.layer(probe.clone()).oneshot(request()).await;
    lost.expect_err("no answer");
    let start = Instant::now();
    assert_eq!(limiter.snapshot().live, 1);

    probe.answer();
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
async fn unclassified_error_counts_as_lost() {
    let probe = Probe::new();
    probe.fail_calls();
    let limiter = limiter(1);
    let service = limited(&limiter, &probe);
    service
        .oneshot(request())
        .await
        .expect_err("the probe fails");
    let counted = || (limiter.snapshot().in_flight, limiter.snapshot().live);
    assert_eq!(counted(), (0, 1));
    // `Limits::lost_after`, and the interval.
    sleep(Duration::from_millis(11_001)).await;
    assert_eq!(counted(), (0, 1));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(counted(), (0, 0));
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
async fn clones_and_layers_share_one_quota() {
    let probe = Probe::new();
    let limiter = Limiter::new(Limits::default());
    let calls: Vec<_> = (0..8)
        .flat_map(|_| {
            let service = limited(&limiter, &probe);
            (0..50).map(move |_| {
                let service = service.clone();
                tokio::spawn(async move {
                    let response = service.oneshot(request()).await.expect("an answer");
                    response.into_body().collect().await.expect("a whole body");
                })
            })
        })
        .collect();
    for call in calls {
        call.await.expect("no panic");
    }
    let arrivals = probe.arrivals();
    assert_eq!(arrivals.len(), 400);
    let largest = arrivals
        .iter()
        .map(|first| {
            let second = *first..*first + Duration::from_secs(1);
            arrivals.iter().filter(|at| second.contains(at)).count()
        })
        .max();
    assert_eq!(largest, Some(50));
}

#[tokio::test(start_paused = true)]
async fn kept_readied_services_take_no_permit() {
    let probe = Probe::new();
    let limiter = limiter(1);
    let mut kept = Vec::new();
    for _ in 0..100 {
        let mut service = limited(&limiter, &probe);
        service.ready().await.expect("it is always ready");
        kept.push(service);
    }
    let start = Instant::now();
    let answer = limited(&limiter, &probe).oneshot(request()).await;
    answer.expect("the probe answers");
    assert_eq!(start.elapsed(), Duration::ZERO);
    drop(kept);
}

#[tokio::test(start_paused = true)]
async fn calls_without_inner_readiness_keep_their_place() {
    use tower::limit::ConcurrencyLimit;
    let probe = Probe::new();
    let limiter = limiter(1);
    let layer = RequestLimitLayer::new(limiter.clone());
    let mut full = ConcurrencyLimit::new(probe.clone(), 1);
    full.ready().await.expect("the only place");
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
