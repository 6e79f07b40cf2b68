use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::signature::{ECDSA_P256_SHA256_FIXED, KeyPair as _, UnparsedPublicKey};
use serde_json::Value;

use super::Realm;
use crate::{ApiKey, Config, clock::Clock};

const ISSUER: &str = "http://127.0.0.1/auth/realms/ServiceConnect";

fn token_of(reply: &Value) -> &str {
    reply["access_token"].as_str().unwrap()
}

fn realm() -> (Realm, ApiKey) {
    Realm::new(Arc::new(Clock::start()), &Config::default())
}

#[test]
fn a_member_holds_three_keys_at_most() {
    let (mut realm, _) = realm();
    realm.add_key("demo").unwrap();
    realm.add_key("demo").unwrap();
    let refused = realm.add_key("demo").unwrap_err();
    assert!(matches!(refused.kind, crate::error::Kind::KeyLimit(_)));
    assert_eq!(refused.to_string(), "member demo already holds 3 keys");
    realm.add_key("other").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_token_is_signed_and_has_its_client_roles_and_expiry() {
    let (mut realm, key) = realm();
    let granted = realm
        .grant(&key.client_id, "profile email", ISSUER)
        .unwrap();

    let (signed, signature) = token_of(&granted).rsplit_once('.').unwrap();
    let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
    let signer = realm.tokens.signer.as_ref().unwrap();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, signer.public_key())
        .verify(signed.as_bytes(), &signature)
        .unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let part = |text: &str| -> Value {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap()
    };
    assert_eq!(part(header)["alg"], "ES256");

    let claims = part(claims);
    assert_eq!(claims["iss"], "http://127.0.0.1/auth/realms/ServiceConnect");
    assert_eq!(claims["aud"], "account");
    let seconds = |name: &str| claims[name].as_i64().unwrap();
    assert_eq!(seconds("exp") - seconds("iat"), 86_400);
    assert!(claims["jti"].as_str().unwrap().starts_with("trrtcc:"));
    assert!(!claims["sub"].as_str().unwrap().is_empty());
    assert_eq!(claims["typ"], "Bearer");
    assert_eq!(claims["azp"], *key.client_id);
    assert_eq!(
        claims["realm_access"]["roles"],
        serde_json::json!(["live", "history"])
    );
}

#[tokio::test(start_paused = true)]
async fn token_is_valid_until_exactly_its_expiry() {
    let (mut realm, key) = realm();
    realm.expires_in = 10;
    let issued = realm.clock.now();
    let token = token_of(&realm.grant(&key.client_id, "", ISSUER).unwrap()).to_owned();
    let end = issued + Duration::from_secs(10);
    assert_eq!(realm.tokens.valid(&token, end).unwrap().generation, 1);
    assert!(
        realm
            .tokens
            .valid(&token, end + Duration::from_nanos(1))
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn revoke_all_invalidates_tokens_and_sets_not_before() {
    let (mut realm, key) = realm();
    let now = realm.clock.now();
    let granted = realm.grant(&key.client_id, "", ISSUER).unwrap();
    assert_eq!(granted["not-before-policy"], 0);
    assert!(realm.tokens.valid(token_of(&granted), now).is_some());
    realm.revoke_all();
    assert!(realm.tokens.valid(token_of(&granted), now).is_none());
    let granted = realm.grant(&key.client_id, "", ISSUER).unwrap();
    assert_eq!(granted["not-before-policy"], realm.clock.wall_at(now));
}

#[test]
fn changed_token_is_invalid() {
    let (mut realm, key) = realm();
    let token = token_of(&realm.grant(&key.client_id, "", ISSUER).unwrap()).to_owned();
    let now = realm.clock.now();
    assert!(realm.tokens.valid(&token, now).is_some());
    assert!(realm.tokens.valid(&token[1..], now).is_none());
    assert!(realm.tokens.valid("", now).is_none());
}

#[test]
fn seed_determines_the_key_and_debug_hides_its_secret() {
    let (_, key) = realm();
    let (_, again) = realm();
    assert_eq!(key, again);
    assert!(!format!("{key:?}").contains(&*key.client_secret));
    let config = Config {
        seed: 1,
        ..Config::default()
    };
    assert_ne!(Realm::new(Arc::new(Clock::start()), &config).1, key);
}
