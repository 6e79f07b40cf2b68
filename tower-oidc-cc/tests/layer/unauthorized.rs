//! Calls whose token was refused.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::support;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{Request, Response, StatusCode};
use support::{
    Again, Body, DATA, Endpoint, builder, dead, echo, endpoint::Reply, get, layer, secs, seen,
    settle, tokens, unauthorized,
};
use tokio::{
    sync::Barrier,
    task::JoinSet,
    time::{Instant, advance, sleep},
};
use tower::{Layer, Service, ServiceExt, limit::GlobalConcurrencyLimitLayer, service_fn};
use tower_oidc_cc::{Judgement, RefreshPolicy, Rejection};

/// A service that refuses the first `refused` tokens as dead, and counts its calls.
fn revoking(
    refused: usize,
) -> (
    impl Service<Request<Body>, Response = Response<String>, Error = Infallible, Future: Send>
    + Clone
    + Send,
    Arc<AtomicUsize>,
) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let service = service_fn(move |request: Request<Body>| {
        counter.fetch_add(1, Ordering::SeqCst);
        let token = seen(&request);
        let number = token.rsplit_once('-').unwrap().1;
        let number: usize = number.parse().unwrap();
        async move {
            Ok(if number <= refused {
                dead()
            } else {
                Response::new(token)
            })
        }
    });
    (service, calls)
}

/// A service that says the same to everyone.
fn always(
    error: &'static str,
) -> impl Service<Request<Body>, Response = Response<String>, Error = Infallible, Future: Send>
+ Clone
+ Send {
    service_fn(move |_: Request<Body>| async move { Ok(unauthorized(error)) })
}

fn found(response: &Response<String>) -> &Rejection {
    response.extensions().get().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_thousand_refused_calls_are_made_again_after_one_request() {
    let endpoint = Endpoint::always(Reply::token(86_400).after(secs(1)));
    let barrier = Arc::new(Barrier::new(1_000));
    let below = service_fn(move |request: Request<Body>| {
        let barrier = Arc::clone(&barrier);
        async move {
            let token = seen(&request);
            if token != "Bearer canary-token-1" {
                return Ok::<_, Infallible>(Response::new(token));
            }
            barrier.wait().await;
            Ok(dead())
        }
    });
    let service = Again(layer(&tokens(&endpoint)).layer(below));
    let mut calls = JoinSet::new();
    for _ in 0..1_000 {
        calls.spawn(service.clone().oneshot(get(DATA)));
    }
    for response in calls.join_all().await {
        assert_eq!(response.unwrap().into_body(), "Bearer canary-token-2");
    }
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_second_refusal_in_a_row_says_that_there_is_no_other_token() {
    let endpoint = Endpoint::default();
    let (below, calls) = revoking(100);
    let service = Again(layer(&tokens(&endpoint)).layer(below));
    let response = service.clone().oneshot(get(DATA)).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    // The second refusal comes a moment after the first: the token is kept, and that is said.
    let finding = found(&response);
    assert_eq!(finding.judgement(), Judgement::DeadToken);
    assert!(!finding.is_replaced());
    // From here on there is no other token to try with.
    drop(service.oneshot(get(DATA)).await.unwrap());
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_token_that_is_gone_comes_back_where_there_is_no_other() {
    // Nobody has asked for another, or the endpoint is left alone already.
    for (policy, then, is_replaced) in [
        (RefreshPolicy::OnExpiry, Reply::default(), true),
        (RefreshPolicy::OnExpiry, Reply::down(), false),
        (RefreshPolicy::Ahead, Reply::down(), false),
    ] {
        let endpoint = Endpoint::scripted([Reply::token(60)]);
        endpoint.set(then.after(secs(1)));
        let tokens = builder().policy(policy).build(endpoint.clone());
        let below = service_fn(async |request: Request<Body>| {
            let token = seen(&request);
            if token != "Bearer canary-token-1" {
                return Ok::<_, Infallible>(Response::new(token));
            }
            sleep(secs(61)).await;
            Ok(dead())
        });
        let service = Again(layer(&tokens).layer(below));
        let response = service.oneshot(get(DATA)).await.unwrap();
        if is_replaced {
            assert_eq!(response.into_body(), "Bearer canary-token-2");
        } else {
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{policy:?}");
            assert!(!found(&response).is_replaced(), "{policy:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_refresh_brings_the_first_answer_back() {
    let endpoint = Endpoint::scripted([Reply::token(60)]);
    endpoint.set(Reply::down());
    let (below, calls) = revoking(1);
    let service = Again(layer(&tokens(&endpoint)).layer(below));
    let response = service.oneshot(get(DATA)).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_held_refusal_under_a_limit_of_one_is_no_deadlock() {
    let endpoint = Endpoint::default();
    let (below, _) = revoking(1);
    let limit = GlobalConcurrencyLimitLayer::new(1);
    let service = Again(layer(&tokens(&endpoint)).layer(limit.layer(below)));
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        calls.spawn(service.clone().oneshot(get(DATA)));
    }
    for response in calls.join_all().await {
        assert_eq!(response.unwrap().into_body(), "Bearer canary-token-2");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_refusal_leaves_the_refresh_to_the_others() {
    let endpoint = Endpoint::always(Reply::token(60).after(secs(2)));
    let tokens = tokens(&endpoint);
    tokens.ready().await.unwrap();
    let (below, _) = revoking(1);
    let service = Again(layer(&tokens).layer(below));
    let call = tokio::spawn(service.clone().oneshot(get(DATA)));
    settle().await;
    assert_eq!(endpoint.count(), 2);
    call.abort();
    sleep(secs(3)).await;
    let response = service.oneshot(get(DATA)).await.unwrap();
    assert_eq!(response.into_body(), "Bearer canary-token-2");
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_of_constant_refusal_cost_five_requests() {
    let endpoint = Endpoint::default();
    let (below, calls) = revoking(usize::MAX);
    let service = Again(layer(&tokens(&endpoint)).layer(below));
    let start = Instant::now();
    while start.elapsed() < secs(600) {
        drop(service.clone().oneshot(get(DATA)).await.unwrap());
        advance(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(endpoint.count(), 5);
    // Few of the thousands were made again, once for each new token.
    let calls = calls.load(Ordering::SeqCst);
    assert!((59_000..60_010).contains(&calls), "{calls}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_role_is_found_and_costs_no_request() {
    let role = "Access token does not have the required scope/role: Missing required realm role";
    let endpoint = Endpoint::default();
    let service = layer(&tokens(&endpoint)).layer(always(role));
    for _ in 0..100 {
        let response = service.clone().oneshot(get(DATA)).await.unwrap();
        let finding = found(&response);
        assert_eq!(finding.judgement(), Judgement::MissingRole);
        assert!(!finding.is_replaced());
        assert!(finding.to_string().contains("administrator"), "{finding}");
        advance(secs(60)).await;
        settle().await;
    }
    assert_eq!(endpoint.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_header_is_diagnosed_and_costs_no_request() {
    let endpoint = Endpoint::default();
    let service = layer(&tokens(&endpoint)).layer(always("no Authorization header found"));
    for _ in 0..100 {
        let response = service.clone().oneshot(get(DATA)).await.unwrap();
        let finding = found(&response);
        assert_eq!(finding.judgement(), Judgement::NoHeader);
        assert!(finding.to_string().contains("proxy"), "{finding}");
        advance(secs(60)).await;
    }
    assert_eq!(endpoint.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_identity_check_that_fails_at_the_gateway_refreshes_nothing() {
    for text in [
        "accessing introspection endpoint (https://sso) failed: timeout",
        "response indicates failure, status=503, body=",
        "JSON decoding failed",
    ] {
        let endpoint = Endpoint::default();
        let service = layer(&tokens(&endpoint)).layer(always(text));
        for _ in 0..100 {
            let response = service.clone().oneshot(get(DATA)).await.unwrap();
            assert!(response.extensions().get::<Rejection>().is_none());
        }
        assert_eq!(endpoint.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_existing_header_is_replaced_and_never_doubled() {
    let tokens = tokens(&Endpoint::default());
    let with_header = || {
        let mut request = get(DATA);
        for old in ["Basic eA==", "Bearer old"] {
            let old = old.parse().unwrap();
            request.headers_mut().append("authorization", old);
        }
        request
    };
    let call = |request| layer(&tokens).layer(echo()).oneshot(request);
    for request in [get(DATA), with_header()] {
        let response = call(request).await.unwrap();
        assert_eq!(response.into_body(), "Bearer canary-token-1");
    }
}
