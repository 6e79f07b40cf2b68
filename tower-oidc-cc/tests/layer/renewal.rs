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
    Body, DATA, Endpoint, echo, endpoint::Reply, get, layer, number, poll_once, secs, settle,
    tokens,
};
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, Service, ServiceExt};

#[tokio::test(start_paused = true)]
async fn renewal_happens_before_expiry_and_delays_no_call() {
    let endpoint = Endpoint::always(Reply::token(1_000).after(secs(5)));
    let service = layer(&tokens(&endpoint)).layer(echo());
    service.clone().oneshot(get(DATA)).await.unwrap();
    let mut sent = Vec::new();
    while sent.last().is_none_or(|(_, number)| *number < 3) {
        // Each call is done within one poll: nothing waits while there is a valid token.
        let mut call = Box::pin(service.clone().oneshot(get(DATA)));
        let response = poll_once(call.as_mut()).expect("no call waits").unwrap();
        sent.push((Instant::now(), number(response.body())));
        sleep(secs(1)).await;
    }
    let posts = endpoint.posts();
    let lived = posts[1].at - posts[0].at;
    assert!(secs(700) <= lived && lived <= secs(801), "{lived:?}");
    // The old token is used for half of what it had left when the new one came.
    let second = sent.iter().find(|(_, number)| *number == 2).unwrap().0;
    let half = (secs(1_000) - lived - secs(5)) / 2;
    let late = (second - posts[1].at - secs(5)).saturating_sub(half);
    assert!(second - posts[1].at >= half && late <= secs(2), "{late:?}");
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
    let tokens = tokens(&Endpoint::always(Reply::token(60).after(secs(9))));
    tokens.ready().await.unwrap();
    assert_eq!(tokens.health().life_left, Some(secs(51)));
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
