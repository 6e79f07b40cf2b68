//! Token requests that fail: the error of the callers, and the backoff.

use crate::layer::support;

use support::{Endpoint, endpoint::Reply, layer, secs, tokens};
use tokio::time::{advance, sleep};
use tower::{Layer, ServiceExt};

#[tokio::test(start_paused = true)]
async fn calls_recover_within_one_backoff_after_an_outage_under_load() {
    let endpoint = Endpoint::always(Reply::down());
    let tokens = tokens(&endpoint);
    for _ in 0..36_000 {
        drop(tokens.ready().await);
        advance(std::time::Duration::from_millis(100)).await;
    }
    // Full jitter under a cap of 30 s has a mean of 15 s: 240 requests, and a few at the start.
    let count = endpoint.count();
    assert!((150..=400).contains(&count), "{count}");
    endpoint.set(Reply::token(60));
    advance(secs(30)).await;
    tokens.ready().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn large_late_and_broken_replies_are_transient() {
    let padded = |size| {
        let mut reply = br#"{"access_token":"t","token_type":"bearer"}"#.to_vec();
        reply.resize(size, b' ');
        Endpoint::always(Reply::body(200, reply))
    };
    tokens(&padded(64 * 1024)).ready().await.unwrap();
    for endpoint in [
        padded(64 * 1024 + 1),
        Endpoint::always(Reply::broken()),
        Endpoint::always(Reply::token(5).after(secs(6))),
    ] {
        let error = tokens(&endpoint).ready().await.unwrap_err();
        assert!(error.is_transient() && endpoint.count() == 1, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_redirect_is_followed() {
    for status in [301, 302, 303, 307, 308] {
        let reply = Reply::body(status, "").header("location", "https://evil.example.com/token");
        let endpoint = Endpoint::always(reply);
        let error = tokens(&endpoint).ready().await.unwrap_err();
        assert!(error.to_string().contains("redirect"), "{error}");
        sleep(secs(10)).await;
        assert_eq!(endpoint.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_buffer_around_the_layer_survives_a_hundred_failures() {
    let endpoint = Endpoint::always(Reply::down());
    let service = layer(&tokens(&endpoint)).layer(support::echo());
    let buffer = tower::buffer::Buffer::new(service, 8);
    for _ in 0..100 {
        let error = buffer
            .clone()
            .oneshot(support::get(support::DATA))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("token endpoint"), "{error}");
        advance(secs(30)).await;
    }
    endpoint.set(Reply::token(60));
    advance(secs(30)).await;
    buffer.oneshot(support::get(support::DATA)).await.unwrap();
}

/// `src/reply/tests.rs` has all replies to a wrong secret or setting.
#[tokio::test(start_paused = true)]
async fn wrong_settings_cost_at_most_one_request_a_minute() {
    for (status, body) in [
        (401, ""),
        (400, r#"{"error":"invalid_target"}"#),
        (200, r#"{"error":{"code":7}}"#),
    ] {
        // The type of the content decides nothing.
        let reply = Reply::body(status, body).header("content-type", "text/html");
        let endpoint = Endpoint::always(reply);
        let tokens = tokens(&endpoint);
        for _ in 0..3_600 {
            drop(tokens.ready().await);
            advance(secs(1)).await;
        }
        let count = endpoint.count();
        assert!(
            (30..=60).contains(&count),
            "{count} requests: {status} {body}"
        );
        let error = tokens.ready().await.unwrap_err().to_string();
        assert!(error.ends_with("this is the token endpoint"), "{error}");
    }
}
