//! One token request for all callers, also when callers are dropped and runtimes end.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::support;

use std::pin::pin;

use support::{
    DATA, Endpoint, SECRET, echo, endpoint::Reply, get, layer, poll_once, probe::Probe, secs,
    settle, timed, tokens,
};
use tokio::{runtime, task::JoinSet};
use tower::{Layer, Service, ServiceExt};

#[tokio::test(start_paused = true)]
async fn a_thousand_cold_calls_make_one_request() {
    let endpoint = Endpoint::always(Reply::token(86_400).after(secs(1)));
    let service = layer(&tokens(&endpoint)).layer(echo());
    let mut calls = JoinSet::new();
    for _ in 0..1_000 {
        calls.spawn(service.clone().oneshot(get(DATA)));
    }
    for response in calls.join_all().await {
        assert_eq!(response.unwrap().into_body(), "Bearer canary-token-1");
    }
    assert_eq!(endpoint.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_on_many_threads_make_one_request() {
    for _ in 0..20 {
        let endpoint = Endpoint::default();
        let service = layer(&tokens(&endpoint)).layer(echo());
        let mut calls = JoinSet::new();
        for _ in 0..200 {
            calls.spawn(service.clone().oneshot(get(DATA)));
        }
        for response in calls.join_all().await {
            assert_eq!(response.unwrap().into_body(), "Bearer canary-token-1");
        }
        assert_eq!(endpoint.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn token_request_is_a_plain_client_credentials_grant() {
    let endpoint = Endpoint::default();
    tokens(&endpoint).ready().await.unwrap();
    let post = &endpoint.posts()[0];
    assert_eq!(post.method, "POST");
    assert_eq!(
        post.uri,
        "https://sso.example.com/auth/realms/ServiceConnect/protocol/openid-connect/token"
    );
    assert_eq!(post.content_type, "application/x-www-form-urlencoded");
    assert_eq!(post.accept, "application/json");
    assert_eq!(
        post.body,
        format!("grant_type=client_credentials&client_id=client&client_secret={SECRET}")
    );
}

#[tokio::test(start_paused = true)]
async fn every_waiter_of_a_failed_flight_gets_its_error() {
    let endpoint = Endpoint::always(Reply::refusal().after(secs(1)));
    let service = layer(&tokens(&endpoint)).layer(echo());
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        calls.spawn(service.clone().oneshot(get(DATA)));
    }
    for response in calls.join_all().await {
        let error = support::token_error(response.unwrap_err());
        assert_eq!(error.oauth_error(), Some("unauthorized_client"));
        assert!(error.retry_after().unwrap() >= secs(60));
    }
    assert_eq!(endpoint.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn dropped_starter_does_not_cancel_the_flight() {
    let endpoint = Endpoint::always(Reply::token(60).after(secs(2)));
    let service = layer(&tokens(&endpoint)).layer(echo());
    let starter = tokio::spawn(service.clone().oneshot(get(DATA)));
    settle().await;
    let waiter = tokio::spawn(service.clone().oneshot(get(DATA)));
    settle().await;
    starter.abort();
    assert!(starter.await.unwrap_err().is_cancelled());
    let response = waiter.await.unwrap().unwrap();
    assert_eq!(response.into_body(), "Bearer canary-token-1");
    assert_eq!(endpoint.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_any_poll_leaves_the_rest_working() {
    for polls in 0..12 {
        let endpoint = Endpoint::always(Reply::token(60).after(secs(2)));
        let service = layer(&tokens(&endpoint)).layer(Probe::default());
        {
            let mut call = Box::pin(service.clone().oneshot(get(DATA)));
            for _ in 0..polls {
                if poll_once(call.as_mut()).is_some() {
                    break;
                }
                tokio::time::sleep(secs(1)).await;
            }
        }
        let response = service.oneshot(get(DATA)).await.unwrap();
        assert_eq!(response.into_body(), "Bearer canary-token-1", "{polls}");
        assert_eq!(endpoint.count(), 1, "{polls}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_the_last_handle() {
    let metrics = runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    for reply in [Reply::token(86_400), Reply::down()] {
        let endpoint = Endpoint::always(reply);
        let tokens = tokens(&endpoint);
        let service = layer(&tokens).layer(echo());
        drop(tokens.ready().await);
        assert_eq!(metrics.num_alive_tasks(), before + 1);
        drop(tokens);
        settle().await;
        assert_eq!(
            metrics.num_alive_tasks(),
            before + 1,
            "the service is a handle, too"
        );
        drop(service);
        settle().await;
        assert_eq!(metrics.num_alive_tasks(), before);
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_client_fails_one_flight_and_the_next_succeeds() {
    let endpoint = Endpoint::scripted([Reply::panic()]);
    let tokens = tokens(&endpoint);
    let error = tokens.ready().await.unwrap_err();
    assert!(error.is_transient());
    tokio::time::sleep(error.retry_after().unwrap()).await;
    tokens.ready().await.unwrap();
    assert_eq!(endpoint.count(), 2);
}

fn paused() -> runtime::Runtime {
    runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

#[test]
fn call_outside_a_runtime_returns_an_error() {
    let endpoint = Endpoint::default();
    let tokens = tokens(&endpoint);
    let service = layer(&tokens).layer(echo());
    let mut call = Box::pin(service.oneshot(get(DATA)));
    let error = poll_once(call.as_mut()).unwrap().unwrap_err();
    assert!(error.to_string().contains("runtime"));
    drop(call);
    paused().block_on(tokens.ready()).unwrap();
    assert_eq!(endpoint.count(), 1);
}

#[test]
fn a_token_without_a_task_expires() {
    let endpoint = Endpoint::always(Reply::token(60));
    let tokens = timed().build(endpoint.clone());
    let service = layer(&tokens).layer(echo());
    paused().block_on(tokens.ready()).unwrap();
    let response = paused()
        .block_on(async {
            tokio::time::advance(secs(61)).await;
            service.oneshot(get(DATA)).await
        })
        .unwrap();
    assert_eq!(response.into_body(), "Bearer canary-token-2");
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn old_flight_failure_does_not_fail_a_later_call() {
    let endpoint = Endpoint::scripted([Reply::down().after(secs(2))]);
    let mut service = layer(&tokens(&endpoint)).layer(echo());
    let waited = tokio::time::timeout(secs(1), service.ready()).await;
    assert!(waited.is_err(), "the request takes longer");
    // The request fails, and the service is next polled long after the end of the backoff.
    tokio::time::sleep(secs(3_600)).await;
    let response = service.ready().await.unwrap().call(get(DATA)).await;
    assert_eq!(response.unwrap().into_body(), "Bearer canary-token-2");
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_handles_built_and_dropped_leave_no_task() {
    let metrics = runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    let endpoint = Endpoint::default();
    for _ in 0..10_000 {
        let tokens = tokens(&endpoint);
        // Half of the handles are dropped during their flight.
        if endpoint.count().is_multiple_of(2) {
            tokens.ready().await.unwrap();
        } else {
            drop(poll_once(pin!(tokens.ready())));
            tokio::task::yield_now().await;
        }
    }
    settle().await;
    assert_eq!(metrics.num_alive_tasks(), before);
}
