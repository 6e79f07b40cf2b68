use std::{sync::Arc, time::Duration};

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::Value;

use super::Realm;
use crate::{ApiKey, Config, clock::Clock};

fn realm() -> (Realm, ApiKey) {
    Realm::new(Arc::new(Clock::start(0)), &Config::default())
}

#[test]
fn a_fourth_key_is_refused_until_one_is_deleted() {
    let (mut realm, first) = realm();
    realm.add_key("demo").unwrap();
    realm.add_key("demo").unwrap();
    let refused = realm.add_key("demo").unwrap_err();
    assert!(refused.is_key_limit());
    assert_eq!(
        refused.to_string(),
        "member demo already holds 3 keys; delete one first"
    );

    realm.delete_key(first.client_id()).unwrap();
    realm.add_key("demo").unwrap();
    assert!(realm.add_key("demo").unwrap_err().is_key_limit());
    assert!(realm.add_key("nobody").unwrap_err().is_unknown());
}

#[test]
fn the_keys_of_another_member_are_counted_apart() {
    let (mut realm, _) = realm();
    realm.add_member("other");
    realm.add_member("demo"); // Changes nothing.
    for _ in 0..3 {
        realm.add_key("other").unwrap();
    }
    for _ in 0..2 {
        realm.add_key("demo").unwrap();
    }
    assert!(realm.add_key("demo").unwrap_err().is_key_limit());
}

#[tokio::test(start_paused = true)]
async fn a_token_is_signed_and_says_who_may_do_what_until_when() {
    let (mut realm, key) = realm();
    let granted = realm.grant(key.client_id(), "profile email").unwrap();

    let public = realm.tokens.public_key().unwrap();
    let mut validation = Validation::new(Algorithm::RS256);
    validation.set_issuer(&["http://127.0.0.1/auth/realms/ServiceConnect"]);
    validation.set_audience(&["account"]);
    let public = DecodingKey::from_rsa_pem(public.as_bytes()).unwrap();
    let token = jsonwebtoken::decode::<Value>(&*granted.token, &public, &validation).unwrap();
    assert_eq!(token.header.kid.as_deref(), Some("tds-sim-0"));

    let claims = token.claims;
    let seconds = |name: &str| claims[name].as_i64().unwrap();
    assert_eq!(seconds("exp") - seconds("iat"), 86_400);
    assert!(claims["jti"].as_str().unwrap().starts_with("trrtcc:"));
    assert!(!claims["sub"].as_str().unwrap().is_empty());
    assert_eq!(claims["typ"], "Bearer");
    assert_eq!(claims["azp"], key.client_id());
    assert_eq!(
        claims["realm_access"]["roles"],
        serde_json::json!(["live", "history"])
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_is_valid_to_the_very_end_of_its_life_and_no_longer() {
    let (mut realm, key) = realm();
    realm.expires_in = 10;
    let issued = realm.clock.now();
    let token = realm.grant(key.client_id(), "").unwrap().token;
    let end = issued + Duration::from_secs(10);
    assert_eq!(realm.valid(&token, end).unwrap().generation, 1);
    assert!(realm.valid(&token, end + Duration::from_nanos(1)).is_none());
}

#[tokio::test(start_paused = true)]
async fn every_way_to_end_a_token_ends_it() {
    let (mut realm, key) = realm();
    let now = realm.clock.now();
    let grant = |realm: &mut Realm| realm.grant(key.client_id(), "").unwrap();

    let (one, other) = (grant(&mut realm).token, grant(&mut realm).token);
    realm.tokens.revoke(&one);
    assert!(realm.valid(&one, now).is_none());
    assert_eq!(realm.valid(&other, now).unwrap().generation, 2);

    realm.tokens.rotate_signing_key();
    assert!(realm.valid(&other, now).is_none());
    let granted = grant(&mut realm);
    assert_eq!(granted.not_before, 0);
    assert!(realm.valid(&granted.token, now).is_some());

    realm.revoke_all();
    assert!(realm.valid(&granted.token, now).is_none());
    assert_eq!(grant(&mut realm).not_before, realm.clock.wall_at(now));
}

#[tokio::test(start_paused = true)]
async fn tokens_that_have_expired_are_swept_out_and_no_others() {
    let (mut realm, key) = realm();
    realm.expires_in = 10;
    realm.tokens.sweep_at = 2;
    let grant = |realm: &mut Realm| realm.grant(key.client_id(), "").unwrap().token;
    let old = grant(&mut realm);
    tokio::time::advance(Duration::from_secs(6)).await;
    let young = grant(&mut realm);
    tokio::time::advance(Duration::from_secs(6)).await;
    grant(&mut realm);
    // Asked at a time when both were good, it shows what is still known.
    let both_good = realm.clock.now().saturating_sub(Duration::from_secs(6));
    assert!(realm.valid(&old, both_good).is_none());
    assert!(realm.valid(&young, both_good).is_some());
}

#[test]
fn a_token_that_was_changed_is_not_valid() {
    let (mut realm, key) = realm();
    let token = realm.grant(key.client_id(), "").unwrap().token;
    let now = realm.clock.now();
    assert!(realm.valid(&token, now).is_some());
    assert!(realm.valid(&token[1..], now).is_none());
    assert!(realm.valid("", now).is_none());
}

#[test]
fn the_skew_moves_the_claims_and_not_the_life() {
    let clock = Clock::start(-3_600);
    let right = Clock::start(0);
    let behind = right.wall_at(Duration::ZERO) - clock.wall_at(Duration::ZERO);
    assert!((3_600..=3_601).contains(&behind));
}

#[test]
fn one_seed_gives_one_key_and_debug_does_not_show_its_secret() {
    let (_, key) = realm();
    let (_, again) = realm();
    assert_eq!(key, again);
    assert!(!format!("{key:?}").contains(key.client_secret()));
    let config = Config {
        seed: 1,
        ..Config::default()
    };
    assert_ne!(Realm::new(Arc::new(Clock::start(0)), &config).1, key);
}
