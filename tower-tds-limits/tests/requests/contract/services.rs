//! Readiness of every service of this crate, each over the same probe.

use std::{fmt::Debug, time::Duration};

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::Empty;
use tokio::task::JoinSet;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, util::BoxCloneService};
use tower_tds_limits::{ConnectionLimitLayer, Limiter, RequestLimitLayer};

use super::{
    limiter,
    probe::{Kind, Probe},
    request,
};

type Stack<K> = BoxCloneService<<K as Kind>::Request, <K as Kind>::Response, BoxError>;

/// The service and its clones can be called at any time, and nothing is left behind.
async fn keeps_the_contract<S>(probe: Probe, service: impl Fn(Probe) -> S)
where
    S: Service<Request<Empty<Bytes>>, Error: Debug, Response: Debug> + Clone,
{
    let mut service = service(probe.clone());
    for calls in 1..=5 {
        service.ready().await.expect("it is always ready");
        let ready = service.ready().await.expect("it still is");
        let answer = ready.call(request()).await.expect("the probe answers");
        drop(answer);
        assert_eq!(probe.calls(), calls);
    }
    let answer = service.clone().oneshot(request()).await;
    drop(answer.expect("the probe answers"));
    probe.fail_readiness();
    assert!(service.oneshot(request()).await.is_err(), "the probe fails");
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
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.in_flight, snapshot.waiting), (0, 0));
    assert_eq!(snapshot.connects_waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn the_request_limit_keeps_the_contract() {
    let limiter = limiter(50);
    let layer = RequestLimitLayer::new(limiter.clone());
    keeps_the_contract(Probe::new(), |probe| layer.layer(probe)).await;
    runs_over(Probe::new(), |stack| layer.layer(stack), request).await;
    nothing_is_held(limiter).await;
}

#[tokio::test(start_paused = true)]
async fn the_connection_limit_runs_over_towers_layers() {
    let limiter = limiter(50);
    let layer = ConnectionLimitLayer::new(limiter.clone());
    let target = || Uri::from_static("http://a");
    runs_over(Probe::connector(), |stack| layer.layer(stack), target).await;
    nothing_is_held(limiter).await;
}
