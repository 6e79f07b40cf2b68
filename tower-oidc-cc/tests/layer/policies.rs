//! Times of the renewal, and the token requests of a day under each.

use crate::layer::support;

use std::time::Duration;

use support::{DATA, Endpoint, HOUR, builder, echo, endpoint::Reply, get, layer, secs};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt};

/// Calls every ten seconds for a day and a minute, so that the first token expires.
#[tokio::test(start_paused = true)]
async fn a_day_costs_two_requests_or_as_many_as_were_set() {
    for (before, count, apart) in [
        // After 70 to 80 % of a life, at random.
        (None, 2, 17 * HOUR - 720..19 * HOUR + 720),
        (Some(20 * HOUR), 7, 4 * HOUR * 9 / 10..4 * HOUR + 1),
        (Some(0), 2, 24 * HOUR..24 * HOUR + 11),
    ] {
        let (endpoint, mut builder) = (Endpoint::default(), builder());
        if let Some(before) = before {
            builder = builder.refresh_before(secs(before));
        }
        let service = layer(&builder.build(endpoint.clone())).layer(echo());
        let start = Instant::now();
        while start.elapsed() <= secs(24 * HOUR + 60) {
            drop(service.clone().oneshot(get(DATA)).await.unwrap());
            sleep(secs(10)).await;
        }
        let posts = endpoint.posts();
        assert_eq!(posts.len(), count, "{before:?}");
        for pair in posts.windows(2) {
            let seconds = (pair[1].at - pair[0].at).as_secs();
            assert!(apart.contains(&seconds), "{before:?}: {seconds}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn renewal_at_expiry_requests_no_token_without_calls() {
    let endpoint = Endpoint::default();
    let tokens = builder().refresh_before(Duration::ZERO);
    let tokens = tokens.build(endpoint.clone());
    tokens.ready().await.unwrap();
    sleep(secs(72 * HOUR)).await;
    assert_eq!(endpoint.count(), 1);
    tokens.ready().await.unwrap();
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn time_before_expiry_longer_than_the_token_life_delays_no_call() {
    let endpoint = Endpoint::always(Reply::token(600).after(secs(5)));
    let tokens = builder().refresh_before(secs(20 * HOUR));
    let tokens = tokens.build(endpoint.clone());
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
