//! Token requests that fail: the error of the callers, and the backoff.

use crate::layer::support;

use support::{Endpoint, endpoint::Reply, layer, secs, tokens};
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, ServiceExt};

#[tokio::test(start_paused = true)]
async fn calls_during_the_backoff_get_the_last_error_at_once() {
    let endpoint = Endpoint::always(Reply::down().header("retry-after", "20"));
    let tokens = tokens(&endpoint);
    let first = tokens.ready().await.unwrap_err();
    assert_eq!(first.retry_after(), Some(secs(20)));
    assert!(first.is_transient());
    let start = Instant::now();
    for left in (1..20).rev() {
        advance(secs(1)).await;
        let error = tokens.ready().await.unwrap_err();
        assert_eq!(error.retry_after(), Some(secs(left)));
    }
    assert_eq!(start.elapsed(), secs(19), "nobody waited");
    assert_eq!(endpoint.count(), 1);
    advance(secs(1)).await;
    assert!(tokens.ready().await.is_err());
    assert_eq!(endpoint.count(), 2);
}

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
        reply(200, r#"{"error":"invalid_target"}"#),
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
        assert!(error.advice().contains("secret"), "{error}");
    }
}

/// Some servers and gateways answer every request with status 200.
#[tokio::test(start_paused = true)]
async fn an_error_with_status_200_is_a_refusal_with_the_words_of_the_server() {
    for (body, code) in [
        (r#"{"error":"invalid_client"}"#, Some("invalid_client")),
        (
            r#"{"error":"key_expired","error_description":"see the portal"}"#,
            Some("key_expired"),
        ),
        (r#"{"error":{"code":7}}"#, None),
        (r#"{"error":"x","access_token":null}"#, Some("x")),
    ] {
        for kind in ["application/json", "text/html", "text/plain"] {
            let reply = Reply::body(200, body).header("content-type", kind);
            let endpoint = Endpoint::always(reply);
            let tokens = tokens(&endpoint);
            for _ in 0..60 {
                drop(tokens.ready().await);
                advance(secs(1)).await;
            }
            assert_eq!(endpoint.count(), 1, "{body}");
            let error = tokens.ready().await.unwrap_err();
            assert_eq!((error.is_transient(), error.oauth_error()), (false, code));
            if body.contains("portal") {
                assert!(
                    error.to_string().contains("key_expired: see the portal"),
                    "{error}"
                );
            }
        }
    }
    for kind in ["text/html", "application/octet-stream"] {
        let reply = Reply::default().header("content-type", kind);
        tokens(&Endpoint::always(reply)).ready().await.unwrap();
    }
}
