//! Clients with a key: what they are granted, and how they are refused.
//!
//! Every refusal stands beside the real server's in the tests of `tower-oidc-cc`, where there is one.

use std::{
    sync::LazyLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use http::Request;
use http_body_util::BodyExt as _;
use ring::{
    rand::SystemRandom,
    signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair},
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::TYPE;
use crate::{Config, Sim};

/// Made for these tests by `openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048`.
static KEY: LazyLock<RsaKeyPair> = LazyLock::new(|| {
    let lines = include_str!("tests/rsa.pem").lines();
    let text: String = lines.filter(|line| !line.starts_with("-----")).collect();
    RsaKeyPair::from_pkcs8(&BASE64_STANDARD.decode(text).unwrap()).unwrap()
});

#[expect(clippy::disallowed_methods, reason = "claims are wall-clock times")]
fn wall() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

const TOKEN: &str = "/auth/realms/ServiceConnect/protocol/openid-connect/token";

fn sim() -> Sim {
    let sim = Sim::new(Config::default());
    sim.set_public_key(sim.client_id(), KEY.public_key().as_ref())
        .unwrap();
    sim
}

/// A statement that is granted a token, but for a change.
fn signed(sim: &Sim, change: impl Fn(&mut Value)) -> String {
    let now = wall();
    let mut claims = json!({
        "iss": sim.client_id(), "sub": sim.client_id(), "aud": format!("https://sso.example{TOKEN}"),
        "jti": format!("{:x}", fastrand::u128(..)), "iat": now, "exp": now.saturating_add(60),
    });
    change(&mut claims);
    sign(&json!({"alg": "RS256", "typ": "JWT"}), &claims)
}

fn sign(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(header), part(claims));
    let mut signature = vec![0; KEY.public().modulus_len()];
    KEY.sign(
        &RSA_PKCS1_SHA256,
        &SystemRandom::new(),
        signed.as_bytes(),
        &mut signature,
    )
    .unwrap();
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
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
    assert_eq!(sim.ledger().summary().token_posts, 3);
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
        claims["exp"] = json!(wall().saturating_add(86_400));
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

#[tokio::test(start_paused = true)]
async fn a_signature_by_another_key_or_algorithm_is_refused() {
    let sim = sim();
    let good = signed(&sim, |_| ());
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let part = |text: &str| -> Value {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap()
    };
    let claims = part(signed.split_once('.').unwrap().1);
    let mut wrong = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
    wrong[0] ^= 1;
    let failed =
        "Client authentication with signed JWT failed: Signature on JWT token failed validation";
    for (statement, reason) in [
        (
            format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(wrong)),
            failed,
        ),
        (format!("{signed}."), failed),
        (
            sign(&json!({"alg": "PS256"}), &claims),
            "Invalid signature algorithm",
        ),
        (
            sign(&json!({"alg": "RS256", "kid": "no"}), &claims),
            "Unable to load public key",
        ),
    ] {
        let (status, reply) = post(&sim, &statement).await;
        assert_eq!((status, &reply["error_description"]), (400, &json!(reason)));
    }
    let unknown = sim.set_public_key("no", KEY.public_key().as_ref());
    assert_eq!(unknown.unwrap_err().kind, crate::error::Kind::UnknownClient);
}
