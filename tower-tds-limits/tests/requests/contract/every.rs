//! Readiness of every service of this crate, each over the same probe.

use std::{
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use http::Uri;
use tokio::task::JoinSet;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, util::BoxCloneService};
use tower_tds_limits::{
    ConnectionLimitLayer, DetachLayer, Limiter, ReadResponse, RequestLimitLayer,
};

use super::{
    limiter,
    probe::{Kind, Probe},
    request,
};

type Stack<K> = BoxCloneService<<K as Kind>::Request, <K as Kind>::Response, BoxError>;

/// The readied instance is the one called, a clone begins unready, an error of readiness is the
/// inner one, and nothing is left behind.
async fn keeps_the_contract<K, S>(
    probe: Probe<K>,
    service: impl Fn(Probe<K>) -> S,
    request: fn() -> K::Request,
) where
    K: Kind,
    S: Service<K::Request> + Clone,
    S::Error: Debug,
    S::Response: Debug,
{
    let mut service = service(probe.clone());
    for calls in 1..=5 {
        service.ready().await.expect("the probe is healthy");
        let ready = service.ready().await.expect("it still is");
        let answer = ready.call(request()).await.expect("the probe answers");
        drop(answer);
        assert_eq!(probe.calls(), calls);
    }
    let ready = service.ready().await.expect("the probe is healthy");
    let mut clone = ready.clone();
    catch_unwind(AssertUnwindSafe(|| drop(clone.call(request()))))
        .expect_err("a clone is not ready");
    assert_eq!(probe.calls(), 5);
    ready.call(request()).await.expect("the original is");
    probe.fail_readiness();
    assert!(clone.ready().await.is_err(), "the probe fails");
}

/// Over a stack of tower's, each part with a readiness of its own.
async fn runs_over<K, S>(
    probe: Probe<K>,
    service: impl Fn(Stack<K>) -> S,
    request: fn() -> K::Request,
) where
    K: Kind<Request: Send, Response: Send> + Send + 'static,
    S: Service<K::Request, Future: Send, Error: Debug + Send, Response: Debug + Send>,
    S: Clone + Send + 'static,
{
    let stack = ServiceBuilder::new()
        .load_shed()
        .buffer(20)
        .concurrency_limit(3)
        .service(probe.clone());
    let service = service(BoxCloneService::new(stack));
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        calls.spawn(service.clone().oneshot(request()));
    }
    for answer in calls.join_all().await {
        answer.expect("the probe answers");
    }
    assert_eq!(probe.calls(), 20);
}

async fn nothing_is_held(limiter: Limiter) {
    // Sockets are closed in the background.
    while limiter.snapshot().connections > 0 {
        tokio::task::yield_now().await;
    }
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.in_flight, snapshot.waiting), (0, 0));
    assert_eq!(snapshot.connects_waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn the_request_limit_keeps_the_contract() {
    let limiter = limiter(50);
    let layer = RequestLimitLayer::new(limiter.clone()).feedback(ReadResponse);
    keeps_the_contract(Probe::new(), |probe| layer.layer(probe), request).await;
    runs_over(Probe::new(), |stack| layer.layer(stack), request).await;
    nothing_is_held(limiter).await;
}

#[tokio::test(start_paused = true)]
async fn the_request_limit_that_rejects_keeps_the_contract() {
    let limiter = limiter(50);
    let layer = RequestLimitLayer::new(limiter.clone())
        .feedback(ReadResponse)
        .max_wait(Duration::ZERO);
    keeps_the_contract(Probe::new(), |probe| layer.layer(probe), request).await;
    runs_over(Probe::new(), |stack| layer.layer(stack), request).await;
    nothing_is_held(limiter).await;
}

#[tokio::test(start_paused = true)]
async fn what_detaches_calls_keeps_the_contract() {
    let layer = DetachLayer;
    keeps_the_contract(Probe::new(), |probe| layer.layer(probe), request).await;
    runs_over(Probe::new(), |stack| layer.layer(stack), request).await;
    let limiter = limiter(50);
    let limit = RequestLimitLayer::new(limiter.clone()).feedback(ReadResponse);
    keeps_the_contract(
        Probe::new(),
        |probe| layer.layer(limit.layer(probe)),
        request,
    )
    .await;
    runs_over(
        Probe::new(),
        |stack| layer.layer(limit.layer(stack)),
        request,
    )
    .await;
    nothing_is_held(limiter).await;
}

#[tokio::test(start_paused = true)]
async fn the_connection_limit_keeps_the_contract() {
    let limiter = limiter(50);
    let layer = ConnectionLimitLayer::new(limiter.clone());
    let target = || Uri::from_static("http://a");
    keeps_the_contract(Probe::connector(), |probe| layer.layer(probe), target).await;
    runs_over(Probe::connector(), |stack| layer.layer(stack), target).await;
    nothing_is_held(limiter).await;
}
