//! A token's life: renewed ahead, expired in time, and safe from every fault of the endpoint.

use crate::layer::support;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use support::{
    Body, DATA, Endpoint, echo, endpoint::Reply, get, layer, poll_once, secs, settle, tokens,
};
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, Service, ServiceExt};

#[tokio::test(start_paused = true)]
async fn renewal_happens_before_expiry_and_delays_no_call() {
    let endpoint = Endpoint::always(Reply::token(1_000).after(secs(5)));
    let mut service = layer(&tokens(&endpoint)).layer(echo());
    service.ready().await.unwrap();
    let start = Instant::now();
    let mut last = String::new();
    while start.elapsed() < secs(2_000) {
        // Each call is done within one poll: nothing waits while there is a valid token.
        let mut call = Box::pin(service.clone().oneshot(get(DATA)));
        last = poll_once(call.as_mut())
            .expect("no call waits")
            .unwrap()
            .into_body();
        sleep(secs(1)).await;
    }
    assert!(
        ["Bearer canary-token-3", "Bearer canary-token-4"].contains(&&*last),
        "{last}"
    );
    let posts = endpoint.posts();
    let lived = posts[1].at - posts[0].at;
    assert!(
        secs(700) <= lived && lived <= secs(800) + secs(1),
        "{lived:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn slow_endpoint_and_short_life_cause_no_request_loop() {
    let endpoint = Endpoint::always(Reply::token(5).after(secs(4)));
    let tokens = tokens(&endpoint);
    tokens.ready().await.unwrap();
    sleep(secs(90)).await;
    let count = endpoint.count();
    assert!((10..=21).contains(&count), "{count}");
}

#[tokio::test(start_paused = true)]
async fn endpoint_faults_fail_no_call_while_the_token_is_valid() {
    for fault in [
        Reply::down(),
        Reply::refusal(),
        Reply::broken(),
        Reply::hang(),
        Reply::panic(),
        Reply::body(200, "<html>"),
    ] {
        let endpoint = Endpoint::scripted([Reply::token(1_000)]);
        endpoint.set(fault);
        let service = layer(&tokens(&endpoint)).layer(echo());
        drop(service.clone().oneshot(get(DATA)).await.unwrap());
        let start = Instant::now();
        while start.elapsed() < secs(998) {
            let mut call = Box::pin(service.clone().oneshot(get(DATA)));
            let response = poll_once(call.as_mut()).expect("no call waits").unwrap();
            assert_eq!(response.into_body(), "Bearer canary-token-1");
            sleep(secs(1)).await;
        }
        assert!(endpoint.count() > 1, "the task tried");
        assert!(endpoint.count() < 60, "and not often: {}", endpoint.count());
        sleep(secs(5)).await;
        let error = service.clone().oneshot(get(DATA)).await.unwrap_err();
        drop(support::token_error(error));
        // No state is terminal.
        endpoint.set(Reply::token(1_000));
        sleep(secs(121)).await;
        let response = service.oneshot(get(DATA)).await.unwrap();
        assert!(response.into_body().starts_with("Bearer canary-token-"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_is_never_sent() {
    let endpoint = Endpoint::scripted([Reply::token(100)]);
    endpoint.set(Reply::hang());
    let mut service = layer(&tokens(&endpoint)).layer(echo());
    drop(service.clone().oneshot(get(DATA)).await.unwrap());

    // Ready while the token is valid, called when it is not.
    service.ready().await.unwrap();
    advance(secs(100)).await;
    settle().await;
    let error = service.call(get(DATA)).await.unwrap_err();
    let error = support::token_error(error);
    assert!(error.is_transient());
    assert_eq!(error.retry_after(), Some(secs(0)));
}

#[tokio::test(start_paused = true)]
async fn token_life_starts_when_the_request_is_sent() {
    let endpoint = Endpoint::scripted([Reply::token(60).after(secs(9))]);
    endpoint.set(Reply::hang());
    let service = layer(&tokens(&endpoint)).layer(echo());
    let start = Instant::now();
    drop(service.clone().oneshot(get(DATA)).await.unwrap());
    advance(secs(60) - start.elapsed() - std::time::Duration::from_millis(5)).await;
    settle().await;
    let mut call = Box::pin(service.clone().oneshot(get(DATA)));
    assert!(poll_once(call.as_mut()).is_some(), "valid to the last");
    advance(std::time::Duration::from_millis(6)).await;
    settle().await;
    let mut call = Box::pin(service.oneshot(get(DATA)));
    assert!(
        poll_once(call.as_mut()).is_none_or(|r| r.is_err()),
        "and no longer"
    );
}

#[tokio::test(start_paused = true)]
async fn calls_during_a_renewal_neither_request_nor_wait() {
    let endpoint = Endpoint::scripted([Reply::token(1_000)]);
    endpoint.set(Reply::token(1_000).after(secs(5)));
    let service = layer(&tokens(&endpoint)).layer(echo());
    service.clone().oneshot(get(DATA)).await.unwrap();
    while endpoint.count() == 1 {
        sleep(secs(1)).await;
    }
    // A token request is in flight.
    for _ in 0..1_000 {
        let mut call = Box::pin(service.clone().oneshot(get(DATA)));
        let response = poll_once(call.as_mut()).expect("no call waits");
        assert_eq!(response.unwrap().into_body(), "Bearer canary-token-1");
    }
    // The old token is used for half of the 200 to 300 s that it has left.
    for (wait, expected) in [(6, 1), (90, 1), (60, 2)] {
        sleep(secs(wait)).await;
        let response = service.clone().oneshot(get(DATA)).await.unwrap();
        let expected = format!("Bearer canary-token-{expected}");
        assert_eq!(response.into_body(), expected, "{wait}");
    }
    assert_eq!(endpoint.count(), 2);
}

/// A gateway in front of the endpoint may keep the token.
#[tokio::test(start_paused = true)]
async fn a_token_that_the_endpoint_returns_until_its_end_costs_few_requests_and_no_call() {
    let posts = Arc::new(AtomicUsize::new(0));
    let (count, start) = (Arc::clone(&posts), Instant::now());
    let caching = tower::service_fn(move |_: http::Request<Body>| {
        count.fetch_add(1, Ordering::SeqCst);
        let age = start.elapsed().as_secs();
        let (token, left) = (age / 86_400, 86_400 - age % 86_400);
        let body = format!(
            r#"{{"access_token":"canary-token-{token}","token_type":"Bearer","expires_in":{left}}}"#
        );
        async move { Ok::<_, io::Error>(http::Response::new(Body::from(body))) }
    });
    let tokens = support::timed().build(caching);
    while start.elapsed() < secs(86_400) {
        tokens.ready().await.unwrap();
        sleep(secs(5)).await;
    }
    let posts = posts.load(Ordering::SeqCst);
    assert!(posts <= 11, "{posts}");
}
