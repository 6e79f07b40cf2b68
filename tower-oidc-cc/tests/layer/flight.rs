//! One token request for all callers, also when callers are dropped and runtimes end.

use crate::layer::support;

use support::{
    DATA, Endpoint, at_once, echo, endpoint::Reply, get, layer, poll_once, probe::Probe, secs,
    settle, tokens,
};
use tokio::runtime;
use tower::{Layer, ServiceExt};

#[tokio::test(start_paused = true)]
async fn a_thousand_cold_calls_make_one_request() {
    let endpoint = Endpoint::always(Reply::token(86_400).after(secs(1)));
    let service = layer(&tokens(&endpoint)).layer(echo());
    for response in at_once(&service, 1_000).await {
        assert_eq!(response.unwrap().into_body(), "Bearer canary-token-1");
    }
    assert_eq!(endpoint.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_on_many_threads_make_one_request() {
    for _ in 0..20 {
        let endpoint = Endpoint::default();
        let service = layer(&tokens(&endpoint)).layer(echo());
        for response in at_once(&service, 200).await {
            assert_eq!(response.unwrap().into_body(), "Bearer canary-token-1");
        }
        assert_eq!(endpoint.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn every_waiter_of_a_failed_flight_gets_its_error() {
    let endpoint = Endpoint::always(Reply::refusal().after(secs(1)));
    let service = layer(&tokens(&endpoint)).layer(echo());
    for response in at_once(&service, 100).await {
        let error = support::token_error(response.unwrap_err());
        assert_eq!(error.oauth_error(), Some("unauthorized_client"));
        assert!(error.retry_after().unwrap() >= secs(60));
    }
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
