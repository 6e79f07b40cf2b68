//! Invalidation: a 401 ends the token that it refuses, and no other.

use crate::support;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{Request, Response, StatusCode};
use support::{Body, DATA, Endpoint, dead, endpoint::Reply, get, layer, secs, seen, tokens};
use tokio::{
    sync::Barrier,
    task::JoinSet,
    time::{Instant, advance},
};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_oidc_cc::{Judge, Judgement};

#[tokio::test(start_paused = true)]
async fn a_thousand_refusals_of_one_token_make_one_request() {
    let endpoint = Endpoint::always(Reply::token(86_400).after(secs(1)));
    let barrier = Arc::new(Barrier::new(1_000));
    let service = layer(&tokens(&endpoint)).layer(service_fn(move |request: Request<Body>| {
        let barrier = Arc::clone(&barrier);
        async move {
            let token = seen(&request);
            if token != "Bearer canary-token-1" {
                return Ok::<_, Infallible>(Response::new(token));
            }
            barrier.wait().await;
            Ok(dead())
        }
    }));
    let mut calls = JoinSet::new();
    for _ in 0..1_000 {
        let service = service.clone();
        calls.spawn(async move {
            let first = service.clone().oneshot(get(DATA)).await.unwrap();
            assert_eq!(first.status(), StatusCode::UNAUTHORIZED);
            service.oneshot(get(DATA)).await.unwrap().into_body()
        });
    }
    for body in calls.join_all().await {
        assert_eq!(body, "Bearer canary-token-2");
    }
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_late_refusal_of_an_old_token_does_nothing() {
    let endpoint = Endpoint::default();
    let (release, held) = tokio::sync::watch::channel(false);
    let service = layer(&tokens(&endpoint)).layer(service_fn(move |request: Request<Body>| {
        let mut held = held.clone();
        async move {
            let token = seen(&request);
            if token != "Bearer canary-token-1" {
                return Ok::<_, Infallible>(Response::new(token));
            }
            if request.uri().query() == Some("late") {
                held.wait_for(|go| *go).await.unwrap();
            }
            Ok(dead())
        }
    }));
    let late = tokio::spawn(service.clone().oneshot(get(&format!("{DATA}?late"))));
    support::settle().await;
    drop(service.clone().oneshot(get(DATA)).await.unwrap());
    let body = service
        .clone()
        .oneshot(get(DATA))
        .await
        .unwrap()
        .into_body();
    assert_eq!(body, "Bearer canary-token-2");
    // Long after, so that it is the number of the token that protects, and not the gap.
    advance(secs(3_700)).await;
    release.send(true).unwrap();
    assert_eq!(
        late.await.unwrap().unwrap().status(),
        StatusCode::UNAUTHORIZED
    );
    let body = service.oneshot(get(DATA)).await.unwrap().into_body();
    assert_eq!(body, "Bearer canary-token-2");
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_of_constant_refusal_cost_five_requests() {
    let endpoint = Endpoint::default();
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let service = layer(&tokens(&endpoint)).layer(service_fn(move |_: Request<Body>| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, Infallible>(dead()) }
    }));
    let start = Instant::now();
    while start.elapsed() < secs(600) {
        let response = service.clone().oneshot(get(DATA)).await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        advance(std::time::Duration::from_millis(10)).await;
    }
    assert!(calls.load(Ordering::SeqCst) > 59_000, "calls go on");
    // At 0, 0, 1, 3 and 7 minutes.
    assert_eq!(endpoint.count(), 5);
}

#[tokio::test(start_paused = true)]
async fn other_refusals_leave_the_token_alone() {
    let endpoint = Endpoint::default();
    let service =
        layer(&tokens(&endpoint)).layer(service_fn(|request: Request<Body>| async move {
            let status: u16 = request.uri().query().unwrap().parse().unwrap();
            let mut response = Response::new(String::new());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            Ok::<_, Infallible>(response)
        }));
    for status in [403, 416, 423, 429, 500, 503] {
        drop(
            service
                .clone()
                .oneshot(get(&format!("{DATA}?{status}")))
                .await
                .unwrap(),
        );
    }
    assert_eq!(endpoint.count(), 1);
}

/// Calls every error of the service below a dead token.
#[derive(Clone)]
struct ByError;

impl Judge<Response<String>, &'static str> for ByError {
    fn judge(&self, outcome: Result<&Response<String>, &&'static str>) -> Judgement {
        match outcome {
            Err(&"dead") => Judgement::DeadToken,
            _ => Judgement::Accepted,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_judge_of_ones_own_reads_typed_errors() {
    let endpoint = Endpoint::default();
    let service = layer(&tokens(&endpoint)).judge(ByError).layer(service_fn(
        |request: Request<Body>| async move {
            match &*seen(&request) {
                "Bearer canary-token-1" => Err("dead"),
                token => Ok(Response::new(token.to_owned())),
            }
        },
    ));
    let error = service.clone().oneshot(get(DATA)).await.unwrap_err();
    assert!(matches!(error, tower_oidc_cc::Error::Inner("dead")));
    let body = service.oneshot(get(DATA)).await.unwrap().into_body();
    assert_eq!(body, "Bearer canary-token-2");
}

#[tokio::test(start_paused = true)]
async fn a_token_invalidated_by_hand_is_replaced_whoever_else_is_accepted_with_it() {
    let endpoint = Endpoint::default();
    let tokens = tokens(&endpoint);
    let mut service = layer(&tokens).layer(support::echo());
    // In one breath, before the task has run.
    let token = tokens.token().await.unwrap();
    tokens.invalidate(&token);
    let call = service.ready().await.unwrap().call(get(DATA));
    assert_eq!(call.await.unwrap().into_body(), "Bearer canary-token-1");
    support::settle().await;
    assert_eq!(endpoint.count(), 2);

    // And while the endpoint is left alone.
    endpoint.set(Reply::down());
    advance(secs(3_600)).await;
    let token = tokens.token().await.unwrap();
    tokens.invalidate(&token);
    support::settle().await;
    assert_eq!(endpoint.count(), 3);
    tokens.invalidate(&token);
    let call = service.ready().await.unwrap().call(get(DATA));
    assert_eq!(call.await.unwrap().into_body(), "Bearer canary-token-2");
    endpoint.heal();
    tokio::time::sleep(secs(300)).await;
    assert_eq!(tokens.token().await.unwrap().secret(), "canary-token-4");
}
