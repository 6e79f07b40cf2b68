//! Clients with a key: what they are granted, and how they are refused.
//!
//! Every refusal stands beside the real server's in the tests of `tower-oidc-cc`, where there is one.

use std::{sync::LazyLock, time::Duration};

use http::Request;
use http_body_util::BodyExt as _;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use rsa::{
    RsaPrivateKey,
    pkcs1::EncodeRsaPrivateKey as _,
    pkcs8::{EncodePublicKey as _, LineEnding},
    rand_core::OsRng,
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::TYPE;
use crate::{Config, Sim};

static KEY: LazyLock<RsaPrivateKey> =
    LazyLock::new(|| RsaPrivateKey::new(&mut OsRng, 2048).unwrap());

const TOKEN: &str = "/auth/realms/ServiceConnect/protocol/openid-connect/token";

fn sim() -> Sim {
    let sim = Sim::new(Config::default());
    let public = KEY.to_public_key().to_public_key_pem(LineEnding::LF);
    sim.set_public_key(sim.client_id(), &public.unwrap())
        .unwrap();
    sim
}

/// A statement that is granted a token, but for a change.
fn signed(sim: &Sim, change: impl Fn(&mut Value)) -> String {
    let now = get_current_timestamp();
    let mut claims = json!({
        "iss": sim.client_id(), "sub": sim.client_id(), "aud": format!("https://sso.example{TOKEN}"),
        "jti": format!("{:x}", fastrand::u128(..)), "iat": now, "exp": now.saturating_add(60),
    });
    change(&mut claims);
    let der = KEY.to_pkcs1_der().unwrap();
    let key = EncodingKey::from_rsa_der(der.as_bytes());
    encode(&Header::new(Algorithm::RS256), &claims, &key).unwrap()
}

async fn post(sim: &Sim, statement: &str) -> (u16, Value) {
    post_to(sim, TOKEN, statement).await
}

async fn post_to(sim: &Sim, address: &str, statement: &str) -> (u16, Value) {
    let form = format!(
        "grant_type=client_credentials&client_assertion_type={TYPE}&client_assertion={statement}"
    );
    let request = Request::post(address)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form);
    let response = sim.clone().oneshot(request.unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_statement_is_good_for_one_token() {
    let sim = sim();
    let statement = signed(&sim, |_| ());
    let (status, reply) = post(&sim, &statement).await;
    assert_eq!(status, 200);
    assert!(reply["access_token"].is_string());
    // It is remembered for as long as it is good.
    tokio::time::advance(Duration::from_secs(59)).await;
    let (status, reply) = post(&sim, &statement).await;
    assert_eq!(
        (status, reply),
        (
            400,
            json!({"error": "invalid_client", "error_description": "Token reuse detected"})
        )
    );
    assert_eq!(post(&sim, &signed(&sim, |_| ())).await.0, 200);
    let posts = sim.ledger().summary().token_posts_by_client;
    assert_eq!(posts, [(sim.client_id().to_owned(), 3)].into());
}

#[tokio::test(start_paused = true)]
async fn the_issuer_is_an_audience_and_two_audiences_are_none() {
    let sim = sim();
    let issuer = "http://127.0.0.1/auth/realms/ServiceConnect";
    let says = |audience: Value| signed(&sim, move |claims| claims["aud"] = audience.clone());
    assert_eq!(post(&sim, &says(json!(issuer))).await.0, 200);
    assert_eq!(post(&sim, &says(json!([issuer]))).await.0, 200);
    for (audience, reason) in [
        (json!([issuer, issuer]), "Multiple audiences not allowed"),
        (json!("https://other.example/"), "Invalid token audience"),
        (json!(TOKEN), "Invalid token audience"),
        (Value::Null, "Invalid token audience"),
    ] {
        let (status, reply) = post(&sim, &says(audience)).await;
        assert_eq!((status, &reply["error_description"]), (400, &json!(reason)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_audience_is_compared_letter_by_letter_with_the_address_that_was_called() {
    let sim = sim();
    for (called, audience, status) in [
        ("https://sso.example", "https://sso.example", 200),
        ("https://sso.example:443", "https://sso.example", 200),
        ("https://sso.example", "https://sso.example:443", 400),
        ("https://sso.example:443", "https://sso.example:443", 400),
        ("https://sso.example", "https://SSO.example", 400),
        ("https://sso.example", "https://other.example", 400),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080", 200),
        ("http://127.0.0.1:8080", "http://127.0.0.1", 400),
    ] {
        let audience = json!(format!("{audience}{TOKEN}"));
        let statement = signed(&sim, |claims| claims["aud"] = audience.clone());
        let (seen, _) = post_to(&sim, &format!("{called}{TOKEN}"), &statement).await;
        assert_eq!(seen, status, "{audience} at {called}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_statement_is_good_for_a_minute_whatever_end_it_gives_itself() {
    let sim = sim();
    let day = |claims: &mut Value| {
        claims["exp"] = json!(get_current_timestamp().saturating_add(86_400));
    };
    let statement = signed(&sim, day);
    tokio::time::advance(Duration::from_secs(63)).await;
    let (status, reply) = post(&sim, &statement).await;
    assert_eq!(status, 400);
    assert_eq!(
        reply["error_description"],
        "Token was issued too far in the past to be used now"
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_key_has_no_secret() {
    let sim = sim();
    let form = format!(
        "grant_type=client_credentials&client_id={}&client_secret={}",
        sim.client_id(),
        sim.client_secret()
    );
    let request = Request::post(TOKEN)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form);
    let response = sim.clone().oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 400);
}

#[test]
fn what_is_no_public_key_is_refused() {
    let sim = Sim::new(Config::default());
    assert!(sim.set_public_key(sim.client_id(), "no").is_err());
    let public = KEY
        .to_public_key()
        .to_public_key_pem(LineEnding::LF)
        .unwrap();
    assert!(sim.set_public_key("no", &public).unwrap_err().is_unknown());
}
