//! 401 in its three wordings, 429, and the format of errors.

use std::time::Duration;

use http::{Method, Request};
use tokio::time::advance;

use super::{answer, get, status, text, with_token};
use crate::{ErrorBody, Outcome, Sim};

async fn message(sim: &Sim, request: Request<String>) -> (u16, String) {
    let response = answer(sim, request).await.unwrap();
    let status = response.status().as_u16();
    let body: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
    (status, body["message"].as_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn the_three_401_have_the_texts_of_the_contract() {
    let (sim, token) = with_token(|_| {});
    let none = Request::get("/v1/live/a").body(String::new()).unwrap();
    let no_header = "no Authorization header found".to_owned();
    assert_eq!(message(&sim, none).await, (401, no_header));
    assert_eq!(
        message(&sim, get("/v1/live/a", "wrong")).await,
        (401, "invalid token".to_owned())
    );

    sim.set_roles(sim.client_id(), ["live"]).unwrap();
    let live_only = sim.token(sim.client_id()).unwrap();
    assert_eq!(status(&sim, get("/v1/live/a", &live_only)).await, 200);
    let missing = "Access token does not have the required scope/role: Missing required realm role";
    let got = message(&sim, get("/v1/history/a", &live_only)).await;
    assert_eq!(got, (401, missing.to_owned()));
    assert_eq!(
        status(&sim, get("/v1/history/a", &token)).await,
        200,
        "older, with both roles"
    );
}

#[tokio::test(start_paused = true)]
async fn tokens_in_the_wrong_shape_are_invalid() {
    let (sim, token) = with_token(|_| {});
    let bearer = format!("Bearer {token}");
    let with = |values: &[&str]| {
        let request = Request::get("/v1/live/a").body(String::new());
        let mut request = request.unwrap();
        for value in values {
            request
                .headers_mut()
                .append("authorization", value.parse().unwrap());
        }
        request
    };
    for values in [
        &[""][..],
        &["Bearer"],
        &[&token],
        &[&format!("Basic {token}")],
        &[&format!("{bearer}x")],
        // Which of the two?
        &[&bearer, &bearer],
    ] {
        let got = message(&sim, with(values)).await;
        assert_eq!(got, (401, "invalid token".to_owned()), "{values:?}");
    }
    assert_eq!(status(&sim, with(&[&format!("bearer {token}")])).await, 200);
}

#[tokio::test(start_paused = true)]
async fn expired_token_gets_401() {
    let (sim, token) = with_token(|config| config.expires_in = 60);
    assert_eq!(status(&sim, get("/v1/live/a", &token)).await, 200);
    advance(Duration::from_secs(61)).await;
    assert_eq!(status(&sim, get("/v1/live/a", &token)).await, 401);
}

#[tokio::test(start_paused = true)]
async fn ledger_records_the_generation_of_valid_tokens() {
    let (sim, token) = with_token(|_| {});
    let second = sim.token(sim.client_id()).unwrap();
    for token in [&*second, &token, "none"] {
        status(&sim, get("/v1/live/a", token)).await;
    }
    sim.set_roles(sim.client_id(), ["live"]).unwrap();
    let third = sim.token(sim.client_id()).unwrap();
    assert_eq!(status(&sim, get("/v1/history/a", &third)).await, 401);
    let tokens: Vec<_> = sim
        .ledger()
        .arrivals()
        .iter()
        .map(|arrival| arrival.token)
        .collect();
    assert_eq!(tokens, [Some(2), Some(1), None, Some(3)]);
}

#[tokio::test(start_paused = true)]
async fn the_quota_is_per_key_and_window_and_its_retry_after_is_optional() {
    let (sim, token) = with_token(|config| {
        config.quota = Some("2/60s".parse().unwrap());
        config.retry_after = true;
    });
    let other = sim.add_key("demo").unwrap();
    let other = sim.token(&other.client_id).unwrap();
    advance(Duration::from_millis(500)).await;
    for expected in [200, 200, 429] {
        assert_eq!(status(&sim, get("/v1/live/a", &token)).await, expected);
    }
    assert_eq!(status(&sim, get("/v1/live/a", &other)).await, 200);
    let refused = answer(&sim, get("/v1/live/a", &token)).await.unwrap();
    assert_eq!(refused.headers()["retry-after"], "60");
    assert_eq!(
        text(refused).await,
        r#"{"message":"API rate limit exceeded"}"#
    );
    advance(Duration::from_secs(60)).await;
    assert_eq!(status(&sim, get("/v1/live/a", &token)).await, 200);

    let (sim, token) = with_token(|config| config.quota = Some("0/60s".parse().unwrap()));
    let refused = answer(&sim, get("/v1/live/a", &token)).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert!(!refused.headers().contains_key("retry-after"));
    sim.set_quota(None);
    assert_eq!(status(&sim, get("/v1/live/a", &token)).await, 200);
}

#[tokio::test(start_paused = true)]
async fn an_error_has_one_text_in_five_formats() {
    for (format, kind, body) in [
        (
            ErrorBody::Json,
            "application/json",
            r#"{"message":"invalid token"}"#,
        ),
        (ErrorBody::Text, "text/plain", "invalid token\n"),
        (ErrorBody::Html, "text/html", "<p>invalid token.</p>"),
        (
            ErrorBody::Xml,
            "application/xml",
            "<message>invalid token</message>",
        ),
    ] {
        let (sim, _) = with_token(|config| config.error_body = format);
        let response = answer(&sim, get("/v1/live/a", "x")).await.unwrap();
        let kind = format!("{kind}; charset=utf-8");
        assert_eq!(response.headers()["content-type"], kind);
        assert!(text(response).await.contains(body), "{format:?}");
    }
    let (sim, _) = with_token(|config| config.error_body = ErrorBody::Empty);
    let response = answer(&sim, get("/v1/live/a", "x")).await.unwrap();
    assert_eq!(response.status(), 401);
    assert_eq!(response.headers()["content-length"], "0");
    assert_eq!(text(response).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_slash_is_escaped_as_kong_escapes_it() {
    let (sim, token) = with_token(|config| config.roles = Vec::new());
    let body = text(answer(&sim, get("/v1/live/a", &token)).await.unwrap()).await;
    assert!(body.contains(r"scope\/role"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn unknown_path_gets_404_and_wrong_method_gets_405() {
    let (sim, token) = with_token(|_| {});
    for path in ["/", "/v1/live/", "/v1/live/a/b", "/v2/live/a"] {
        assert_eq!(status(&sim, get(path, &token)).await, 404, "{path}");
    }
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::HEAD] {
        let mut request = get("/v1/live/a", &token);
        *request.method_mut() = method;
        assert_eq!(status(&sim, request).await, 405);
    }
}

#[tokio::test(start_paused = true)]
async fn empty_response_is_complete_with_its_head() {
    let (sim, _) = with_token(|config| config.error_body = ErrorBody::Empty);
    // hyper does not poll a body that has ended.
    drop(answer(&sim, get("/v1/live/a", "wrong")).await.unwrap());
    assert_eq!(sim.ledger().arrivals()[0].outcome, Outcome::Complete);
}

#[tokio::test(start_paused = true)]
async fn matching_etag_gets_304() {
    let (sim, token) = with_token(|config| config.live_bytes = 64);
    let whole = answer(&sim, get("/v1/live/a", &token)).await.unwrap();
    let tag = whole.headers()["etag"].clone();
    for (known, status) in [
        (tag.to_str().unwrap(), 304),
        ("\"old\", W/\"64\"", 304),
        ("*", 304),
        ("W/\"65\"", 200),
    ] {
        let mut request = get("/v1/live/a", &token);
        let known = known.parse().unwrap();
        request.headers_mut().insert("if-none-match", known);
        let response = answer(&sim, request).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["etag"], tag);
        assert_eq!(text(response).await.is_empty(), status == 304);
    }
    // Other data have another tag.
    let history = answer(&sim, get("/v1/history/a?bytes=65", &token)).await;
    assert_ne!(history.unwrap().headers()["etag"], tag);
}
