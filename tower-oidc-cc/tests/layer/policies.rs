//! Times of the renewal, and the token requests of a day under each.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::support;

use std::time::Duration;

use support::{DATA, Endpoint, HOUR, builder, echo, endpoint::Reply, get, layer, secs};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt};
use tower_oidc_cc::TokenSource;

fn with(before: Option<Duration>, endpoint: &Endpoint) -> TokenSource {
    let builder = match before {
        Some(before) => builder().refresh_before(before),
        None => builder(),
    };
    builder.build(endpoint.clone())
}

/// Calls every ten seconds for a day and a minute, so that the first token expires. Returns
/// the times of the token requests.
async fn day(before: Option<Duration>) -> Vec<Instant> {
    let endpoint = Endpoint::default();
    let service = layer(&with(before, &endpoint)).layer(echo());
    let start = Instant::now();
    while start.elapsed() <= secs(24 * HOUR + 60) {
        drop(service.clone().oneshot(get(DATA)).await.unwrap());
        sleep(secs(10)).await;
    }
    endpoint.posts().iter().map(|post| post.at).collect()
}

#[tokio::test(start_paused = true)]
async fn renewal_by_default_costs_two_requests_a_day() {
    assert_eq!(day(None).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn renewal_twenty_hours_before_expiry_costs_seven_requests_a_day() {
    let posts = day(Some(secs(20 * HOUR))).await;
    assert_eq!(posts.len(), 7);
    for pair in posts.windows(2) {
        let apart = pair[1] - pair[0];
        assert!(secs(4 * HOUR * 9 / 10) <= apart && apart <= secs(4 * HOUR + 1));
    }
}

#[tokio::test(start_paused = true)]
async fn renewal_at_expiry_costs_two_requests_a_day() {
    let posts = day(Some(Duration::ZERO)).await;
    assert_eq!(posts.len(), 2);
    assert!(posts[1] - posts[0] >= secs(24 * HOUR));
}

#[tokio::test(start_paused = true)]
async fn renewal_at_expiry_requests_no_token_without_calls() {
    let endpoint = Endpoint::default();
    let tokens = with(Some(Duration::ZERO), &endpoint);
    tokens.ready().await.unwrap();
    sleep(secs(72 * HOUR)).await;
    assert_eq!(endpoint.count(), 1);
    tokens.ready().await.unwrap();
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn time_before_expiry_longer_than_the_token_life_delays_no_call() {
    let endpoint = Endpoint::always(Reply::token(600).after(secs(5)));
    let tokens = with(Some(secs(20 * HOUR)), &endpoint);
    tokens.ready().await.unwrap();
    let start = Instant::now();
    while start.elapsed() < secs(HOUR) {
        let before = Instant::now();
        tokens.ready().await.unwrap();
        assert_eq!(before.elapsed(), Duration::ZERO);
        sleep(secs(1)).await;
    }
    let count = endpoint.count();
    assert!((12..=14).contains(&count), "{count}");
}
