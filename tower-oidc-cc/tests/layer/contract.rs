//! The contract of `tower::Service`, above and below.

use crate::layer::support;

use std::{convert::Infallible, sync::atomic::Ordering, time::Duration};

use http::{Request, Response};
use support::{
    Body, DATA, DAY, Endpoint, echo,
    endpoint::Reply,
    get, layer, poll_once,
    probe::{Broken, Probe},
    secs, seen, settle, tokens,
};
use tokio::{
    task::JoinSet,
    time::{advance, sleep},
};
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt, limit::GlobalConcurrencyLimitLayer, service_fn};
use tower_oidc_cc::TokenError;

#[tokio::test(start_paused = true)]
async fn call_uses_the_readied_inner_service() {
    let endpoint = Endpoint::default();
    let probe = Probe::default();
    let mut service = layer(&tokens(&endpoint)).layer(probe.clone());
    for _ in 0..3 {
        let response = service
            .ready()
            .await
            .unwrap()
            .call(get(DATA))
            .await
            .unwrap();
        assert_eq!(response.into_body(), "Bearer canary-token-1");
    }
    // A clone of a ready service is not ready, and a clone of a clone also works.
    service.ready().await.unwrap();
    drop(service.clone().clone().oneshot(get(DATA)).await.unwrap());
    assert_eq!(probe.calls.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn poll_ready_is_idempotent_and_wakes_its_task() {
    let endpoint = Endpoint::always(Reply::token(60).after(secs(1)));
    let probe = Probe::default();
    let mut service = layer(&tokens(&endpoint)).layer(probe.clone());
    let mut ready = task::spawn(std::future::poll_fn(|cx| {
        Service::<Request<Body>>::poll_ready(&mut service, cx)
    }));
    assert_pending!(ready.poll());
    assert_pending!(ready.poll());
    settle().await;
    assert!(!ready.is_woken());
    advance(secs(2)).await;
    settle().await;
    assert!(ready.is_woken(), "by the flight");
    assert_pending!(ready.poll());
    assert!(ready.is_woken(), "by the probe");
    assert_ready_ok!(ready.poll());
    assert_ready_ok!(ready.poll());
    drop(ready);
    assert_eq!(probe.readied.load(Ordering::SeqCst), 1);
    assert_eq!(endpoint.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn inner_readiness_error_keeps_its_type() {
    let endpoint = Endpoint::default();
    for poll in [0, 1] {
        let mut service = layer(&tokens(&endpoint)).layer(Probe::failing_at(poll));
        let error = ServiceExt::<Request<Body>>::ready(&mut service)
            .await
            .unwrap_err();
        assert!(std::error::Error::source(&error).unwrap().is::<Broken>());
    }
}

#[tokio::test(start_paused = true)]
async fn failed_token_request_fails_the_call_before_the_inner_service() {
    let endpoint = Endpoint::always(Reply::refusal());
    let probe = Probe::default();
    let mut service = layer(&tokens(&endpoint)).layer(probe.clone());
    for _ in 0..3 {
        for _ in 0..3 {
            service.ready().await.unwrap();
        }
        let error = service.call(get(DATA)).await.unwrap_err();
        assert!(support::token_error(error).oauth_error().is_some());
    }
    assert_eq!(probe.readied.load(Ordering::SeqCst), 0);
    assert_eq!(probe.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn old_authorization_headers_are_replaced_by_one() {
    let service = layer(&tokens(&Endpoint::default())).layer(echo());
    let mut request = get(DATA);
    for old in ["Basic eA==", "Bearer old"] {
        request
            .headers_mut()
            .append("authorization", old.parse().unwrap());
    }
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(response.into_body(), "Bearer canary-token-1");
}

#[tokio::test(start_paused = true)]
async fn calls_without_readiness_say_so_while_there_is_no_token() {
    let endpoint = Endpoint::always(Reply::token(DAY).after(secs(1)));
    let mut service = layer(&tokens(&endpoint)).layer(echo());
    let mut unready = service.clone();
    let error = unready.call(get(DATA)).await.unwrap_err();
    assert!(error.to_string().contains("await `ready`"), "{error}");
    // A service whose readiness is still pending is not ready.
    let mut pending = task::spawn(std::future::poll_fn(|cx| {
        Service::<Request<Body>>::poll_ready(&mut service, cx)
    }));
    assert_pending!(pending.poll());
    drop(pending);
    let error = support::token_error(service.call(get(DATA)).await.unwrap_err());
    assert!(error.to_string().contains("before it was ready"), "{error}");
    assert!(error.is_transient() && error.retry_after() == Some(secs(0)));
    sleep(secs(2)).await;
    let response = service.call(get(DATA)).await.unwrap();
    assert_eq!(response.into_body(), "Bearer canary-token-1");
    assert_eq!(endpoint.count(), 1);
}

/// A client that answers token requests and data requests, as one hyper client does.
fn one_client(
    endpoint: Endpoint,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = std::io::Error, Future: Send>
+ Clone
+ Send
+ 'static {
    service_fn(move |request: Request<Body>| {
        let endpoint = endpoint.clone();
        async move {
            if request.uri().host() == Some("sso.example.com") {
                return endpoint.oneshot(request).await;
            }
            sleep(Duration::from_millis(100)).await;
            Ok(Response::new(Body::from(seen(&request))))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn token_requests_do_not_deadlock_behind_a_shared_limit() {
    let endpoint = Endpoint::always(Reply::token(2).after(Duration::from_millis(50)));
    let client = GlobalConcurrencyLimitLayer::new(1).layer(one_client(endpoint.clone()));
    let uri = tower_oidc_cc::TokenEndpoint::keycloak("https://sso.example.com", "r").unwrap();
    let credentials = tower_oidc_cc::Credentials::new("client", "secret").unwrap();
    let tokens = tower_oidc_cc::TokenSource::builder(uri, credentials).build(client.clone());
    let service = layer(&tokens).layer(client);
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let service = service.clone();
        calls.spawn(async move {
            // A token that expired in the queue of the limit is a typed error: call again.
            loop {
                match service.clone().oneshot(get(DATA)).await {
                    Err(error) if error.token().is_some_and(TokenError::is_transient) => {
                        let wait = error.token().and_then(TokenError::retry_after);
                        sleep(wait.unwrap()).await;
                    }
                    outcome => return outcome.unwrap(),
                }
            }
        });
    }
    let done = tokio::time::timeout(secs(600), calls.join_all()).await;
    assert_eq!(done.expect("no deadlock").len(), 100);
    assert!(endpoint.count() > 2);
}

#[tokio::test(start_paused = true)]
async fn no_permit_is_held_while_a_token_is_fetched() {
    let endpoint = Endpoint::always(Reply::hang());
    let limit = GlobalConcurrencyLimitLayer::new(1);
    let service = layer(&tokens(&endpoint)).layer(limit.layer(echo()));
    let mut waiting = Box::pin(service.clone().oneshot(get(DATA)));
    assert!(poll_once(waiting.as_mut()).is_none());
    settle().await;
    assert_eq!(endpoint.count(), 1);
    let other = limit.layer(service_fn(|()| async { Ok::<_, Infallible>(()) }));
    let mut other = Box::pin(other.oneshot(()));
    assert!(poll_once(other.as_mut()).is_some(), "the permit is free");
}

#[tokio::test(start_paused = true)]
async fn queued_call_keeps_its_place_when_its_token_expires() {
    let endpoint = Endpoint::scripted([Reply::token(60)]);
    endpoint.set(Reply::hang());
    let limit = GlobalConcurrencyLimitLayer::new(1);
    let mut holder = limit.layer(service_fn(|()| async { Ok::<_, Infallible>(()) }));
    holder.ready().await.unwrap();
    let service = layer(&tokens(&endpoint)).layer(limit.layer(echo()));
    let mut queued = task::spawn(service.oneshot(get(DATA)));
    assert_pending!(queued.poll());
    settle().await;
    assert_pending!(queued.poll());
    // The token expires in the queue, and no new token will come.
    advance(secs(61)).await;
    settle().await;
    drop(holder);
    assert!(queued.is_woken());
    let error = tokio_test::assert_ready_err!(queued.poll());
    assert_eq!(support::token_error(error).retry_after(), Some(secs(0)));
}
