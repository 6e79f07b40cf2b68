//! The readiness contract of `Service`: with a probe that panics if it is broken, and with tower's
//! own layers.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::{Instant, advance};
use tokio_test::{assert_pending, task};
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_tds_errors::{ClassifyLayer, GiveUp, Kind, RetryLayer};
use tower_tds_outcome::Secrets;

use crate::earlier_attempts::Hangs;
use crate::probe::{Probe, get, status_of};

/// Fails twice, succeeds once, and repeats that.
fn flaky() -> Probe {
    Probe::new(|n| Ok(status_of(if n % 3 == 2 { 200 } else { 503 })))
}

/// Calls the service in both styles: one instance that is made ready for each call, and one clone
/// per call.
async fn drive<S, E>(mut service: S)
where
    S: Service<Request<Full<Bytes>>, Response = Response<Full<Bytes>>, Error = E> + Clone,
    E: std::fmt::Debug,
{
    for _ in 0..10 {
        let ready = service.ready().await.unwrap();
        ready.ready().await.unwrap();
        ready.call(get("/")).await.unwrap();
        service.clone().oneshot(get("/")).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_calls_the_service_that_was_readied_for_it() {
    let retry = || RetryLayer::new().budget(None);
    let stack = ServiceBuilder::new;
    let probe = Probe::always(200);
    drive(ClassifyLayer::new().layer(probe.clone())).await;
    assert_eq!(probe.seen().len(), 20);
    let probes: [_; 4] = std::array::from_fn(|_| flaky());
    let classified = |probe: &Probe| ClassifyLayer::new().layer(probe.clone());
    drive(stack().layer(retry()).service(classified(&probes[0]))).await;
    let between = stack().layer(retry()).layer(BufferLayer::new(4));
    drive(between.service(classified(&probes[1]))).await;
    let below = stack().layer(retry()).layer(ClassifyLayer::new());
    drive(below.layer(BufferLayer::new(4)).service(probes[2].clone())).await;
    let limited = stack().layer(retry()).layer(ConcurrencyLimitLayer::new(1));
    let limited = limited.layer(ClassifyLayer::new());
    let limited = limited.layer(ConcurrencyLimitLayer::new(1));
    drive(limited.service(probes[3].clone())).await;
    assert_eq!(probes.map(|probe| probe.seen().len()), [60; 4]);
}

#[tokio::test(start_paused = true)]
async fn shed_request_is_unsent_and_retried() {
    // The probe is not ready at the first poll, and load shedding polls only once.
    let probe = Probe::always(200);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new())
        .layer(LoadShedLayer::new())
        .layer(ClassifyLayer::new())
        .service(probe.clone());
    let response = stack.oneshot(get("/")).await.unwrap();
    assert_eq!(
        tower_tds_errors::Attempt::of(response.extensions()),
        // The same instance is called again.
        2
    );
    let shed = ServiceBuilder::new()
        .layer(ClassifyLayer::new())
        .layer(LoadShedLayer::new())
        .service(probe.clone());
    assert_eq!(
        shed.oneshot(get("/")).await.unwrap_err().kind(),
        Kind::LimitTimeout
    );
    assert_eq!(probe.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn retry_is_always_ready_and_its_call_returns_readiness_errors() {
    let broken = Probe::with(|_| unreachable!(), Duration::ZERO, 0);
    let secrets = Secrets::default();
    secrets.add("a part of the text of its error", "is broken");
    let classify = ClassifyLayer::new().secrets(secrets);
    let mut stack = RetryLayer::new().layer(classify.layer(broken.clone()));
    let called = stack.ready().await.unwrap().call(get("/v2")).await;
    let error = called.unwrap_err();
    assert_eq!(
        (error.kind(), error.gave_up(), error.attempts()),
        (Kind::Unrecognized, Some(GiveUp::NotReady), 0)
    );
    assert!(error.uri() == Some("/v2") && broken.seen().is_empty());
    assert!(error.to_string().contains("the probe [redacted]"));
}

#[tokio::test(start_paused = true)]
async fn readiness_error_between_attempts_keeps_the_earlier_failure() {
    let breaks = Probe::with(|_| Ok(status_of(503)), Duration::ZERO, 1);
    let stack = RetryLayer::new().layer(ClassifyLayer::new().layer(breaks));
    let error = stack.oneshot(get("/")).await.unwrap_err();
    assert_eq!(error.gave_up(), Some(GiveUp::NotReady));
    assert_eq!((error.kind(), error.attempts()), (Kind::Unavailable, 1));
}

#[tokio::test(start_paused = true)]
async fn waiting_retry_holds_no_permit() {
    // The first caller waits a second after its 423; the second caller needs the one permit.
    let probe = Probe::new(|n| Ok(status_of(if n == 0 { 423 } else { 200 })));
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .layer(ClassifyLayer::new())
        .service(probe.clone());
    let mut first = task::spawn(stack.clone().oneshot(get("/first")));
    for _ in 0..10 {
        assert_pending!(first.poll());
        advance(Duration::from_millis(1)).await;
    }
    stack.oneshot(get("/second")).await.unwrap();
    first.await.unwrap();
    let seen = probe.seen();
    for (seen, path, attempt) in [
        (&seen[0], "/first", 1),
        (&seen[1], "/second", 1),
        (&seen[2], "/first", 2),
    ] {
        assert!(seen.line.contains(path));
        assert_eq!(seen.attempt, attempt);
    }
    assert!(seen[1].at < Duration::from_secs(1) && seen[2].at >= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn future_dropped_at_any_poll_releases_its_permit() {
    for polls in 0..200 {
        fastrand::seed(polls);
        let answer = |n| Ok(status_of(if n < 2 { 503 } else { 200 }));
        let probe = Probe::with(answer, Duration::from_millis(3), usize::MAX);
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::new().deadline(Duration::from_secs(5)))
            .layer(ConcurrencyLimitLayer::new(1))
            .layer(ClassifyLayer::new())
            .service(probe.clone());
        let mut dropped = task::spawn(stack.clone().oneshot(get("/dropped")));
        for _ in 0..polls {
            if dropped.poll().is_ready() {
                break;
            }
            advance(Duration::from_millis(1)).await;
        }
        drop(dropped);
        let sent = probe.seen().len();
        advance(Duration::from_secs(60)).await;
        assert_eq!(probe.seen().len(), sent, "nothing is sent after the drop");
        let response = tokio::time::timeout(Duration::from_secs(60), stack.oneshot(get("/next")));
        response.await.expect("the permit is free again").unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_passes_with_its_body_unpolled() {
    for status in [200, 204, 206, 299, 304] {
        let client = tower::service_fn(move |_: Request<String>| {
            std::future::ready(Response::builder().status(status).body(Hangs))
        });
        let stack = RetryLayer::new().layer(ClassifyLayer::new().layer(client));
        let start = Instant::now();
        let response = stack.oneshot(Request::new(String::new())).await.unwrap();
        assert_eq!(response.status(), status);
        assert!(response.extensions().is_empty(), "not even its attempt");
        assert_eq!(start.elapsed(), Duration::ZERO, "no byte is waited for");
    }
}
