//! A bound on token requests that holds under every fault.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::support;

use std::num::NonZeroU32;

use http::Request;
use support::{Body, DATA, Endpoint, builder, dead, echo, endpoint::Reply, get, layer, secs};
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, ServiceExt, service_fn};
use tower_oidc_cc::{RefreshPolicy, TokenSource};

fn with(per_hour: u32, endpoint: &Endpoint) -> TokenSource {
    let budget = NonZeroU32::new(per_hour).unwrap();
    builder().budget(budget).build(endpoint.clone())
}

/// The most requests that any hour saw.
fn most_in_an_hour(endpoint: &Endpoint) -> usize {
    let posts: Vec<Instant> = endpoint.posts().iter().map(|post| post.at).collect();
    let hour_from = |from: &Instant| {
        let hour = posts
            .iter()
            .filter(|at| *at >= from && **at - *from < secs(3_600));
        hour.count()
    };
    posts.iter().map(hour_from).max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_budget_holds_under_every_fault() {
    for fault in [
        Reply::down(),
        Reply::down().header("retry-after", "0"),
        Reply::refusal(),
        Reply::broken(),
        Reply::hang(),
        Reply::panic(),
        Reply::token(0),
        Reply::token(1),
        Reply::token(2).after(secs(1)),
        Reply::body(200, "<html>"),
    ] {
        let endpoint = Endpoint::always(fault);
        let tokens = with(10, &endpoint);
        let start = Instant::now();
        while start.elapsed() < secs(3 * 3_600) {
            drop(tokens.ready().await);
            sleep(secs(1)).await;
        }
        let most = most_in_an_hour(&endpoint);
        assert!(most <= 10, "{most}");
        assert!(endpoint.count() >= 10, "{}", endpoint.count());
    }
}

#[tokio::test(start_paused = true)]
async fn a_spent_budget_is_a_typed_refusal_that_names_its_end() {
    let endpoint = Endpoint::always(Reply::token(2));
    let tokens = with(10, &endpoint);
    let error = loop {
        match tokens.ready().await {
            Ok(()) => sleep(secs(1)).await,
            Err(error) => break error,
        }
    };
    assert!(error.is_over_budget() && error.is_transient() && !error.is_rejected());
    let wait = error.retry_after().unwrap();
    assert!(wait <= secs(601), "{wait:?}");
    assert_eq!(endpoint.count(), 5);
    // Nobody waits for it, and nobody is asked before.
    let before = Instant::now();
    advance(wait - secs(1)).await;
    assert!(tokens.ready().await.unwrap_err().is_over_budget());
    assert_eq!(before.elapsed(), wait - secs(1));
    advance(secs(1)).await;
    tokens.ready().await.unwrap();
    assert_eq!(endpoint.count(), 6);
}

#[tokio::test(start_paused = true)]
async fn the_last_request_is_kept_for_when_there_is_no_token() {
    let endpoint = Endpoint::always(Reply::token(3_600));
    let budget = NonZeroU32::new(4).unwrap();
    let tokens = builder()
        .budget(budget)
        .policy(RefreshPolicy::Interval(secs(60)))
        .build(endpoint.clone());
    tokens.ready().await.unwrap();
    // Two at once: the second is not for a renewal, so the schedule waits for one to be paid.
    sleep(secs(600)).await;
    assert_eq!(endpoint.count(), 1);
    let service = layer(&tokens).layer(service_fn(async |_: Request<Body>| {
        Ok::<_, std::convert::Infallible>(dead())
    }));
    drop(service.oneshot(get(DATA)).await.unwrap());
    tokens.ready().await.unwrap();
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_valid_token_serves_while_the_budget_is_spent() {
    let endpoint = Endpoint::always(Reply::token(1_000));
    let service = layer(&with(1, &endpoint)).layer(echo());
    let start = Instant::now();
    while start.elapsed() < secs(995) {
        let response = service.clone().oneshot(get(DATA)).await.unwrap();
        assert_eq!(response.into_body(), "Bearer canary-token-1");
        sleep(secs(1)).await;
    }
    assert_eq!(endpoint.count(), 1);
}
