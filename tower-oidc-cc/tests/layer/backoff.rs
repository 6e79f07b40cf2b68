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
async fn unusable_replies_are_classified_as_transient_or_permanent() {
    let padded = |size| {
        let mut reply = br#"{"access_token":"t","token_type":"bearer"}"#.to_vec();
        reply.resize(size, b' ');
        Reply::body(200, reply)
    };
    tokens(&Endpoint::always(padded(64 * 1024)))
        .ready()
        .await
        .unwrap();
    for (reply, transient) in [
        (padded(64 * 1024 + 1), true),
        (Reply::broken(), true),
        (Reply::token(0), true),
        (Reply::token(5).after(secs(6)), true),
        (
            Reply::body(200, r#"{"access_token":"","token_type":"Bearer"}"#),
            false,
        ),
        (
            Reply::body(200, r#"{"access_token":"a b","token_type":"Bearer"}"#),
            false,
        ),
        (
            Reply::body(200, r#"{"access_token":"a\r\nx: y","token_type":"Bearer"}"#),
            false,
        ),
        (
            Reply::body(200, r#"{"access_token":"é","token_type":"Bearer"}"#),
            false,
        ),
    ] {
        let endpoint = Endpoint::always(reply);
        let error = tokens(&endpoint).ready().await.unwrap_err();
        assert_eq!(error.is_transient(), transient, "{error}");
        assert_eq!(endpoint.count(), 1);
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

/// Replies of servers and gateways to a wrong secret or a wrong setting.
fn wrong_settings() -> Vec<Reply> {
    let reply = |status, body: &'static str| Reply::body(status, body);
    let html = |status, body| reply(status, body).header("content-type", "text/html");
    vec![
        reply(401, ""),
        reply(401, "").header("www-authenticate", r#"Basic realm="token""#),
        // Kong, Okta, Apigee, Auth0, and a page.
        reply(401, r#"{"message":"Unauthorized"}"#),
        reply(401, r#"{"errorCode":"invalid_client","errorSummary":"no"}"#),
        reply(
            401,
            r#"{"ErrorCode":"invalid_client","Error":"ClientId is Invalid"}"#,
        ),
        reply(
            401,
            r#"{"error":"access_denied","error_description":"Unauthorized"}"#,
        ),
        html(401, "<html>no entry</html>"),
        reply(401, r#"{"error":{"code":"x"}}"#),
        reply(400, r#"{"error":"invalid_target"}"#),
        reply(400, r#"{"error":"invalid_dpop_proof"}"#),
        reply(400, r#"{"error":"use_dpop_nonce"}"#),
        reply(400, r#"{"error":"of_no_standard"}"#),
        reply(400, r#"{"error":["invalid_client"]}"#),
        reply(400, r#"{"message":"no"}"#),
        reply(400, "missing client_id"),
        reply(400, ""),
        reply(403, r#"{"error":"invalid_target"}"#),
        // Some servers and gateways answer every request with status 200.
        reply(200, r#"{"error":"invalid_target"}"#),
        html(200, r#"{"error":{"code":7}}"#),
        reply(200, r#"{"error":"x","access_token":null}"#),
    ]
}

#[tokio::test(start_paused = true)]
async fn wrong_settings_cost_at_most_one_request_a_minute() {
    for reply in wrong_settings() {
        let endpoint = Endpoint::always(reply.clone());
        let tokens = tokens(&endpoint);
        for _ in 0..3_600 {
            drop(tokens.ready().await);
            advance(secs(1)).await;
        }
        let count = endpoint.count();
        assert!((30..=60).contains(&count), "{count} requests: {reply:?}");
        let error = tokens.ready().await.unwrap_err();
        assert!(!error.is_transient(), "{error}: {reply:?}");
        assert!(
            error.to_string().ends_with("this is the token endpoint"),
            "{error}"
        );
    }
}
