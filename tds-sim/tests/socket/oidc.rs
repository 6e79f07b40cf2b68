//! Discovery, keys and introspection, which libraries of other languages use.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::Value;
use tds_sim::{Config, Server};

use crate::client::{Client, token_url};

const REALM: &str = "/auth/realms/ServiceConnect";

async fn json(url: &str) -> Value {
    let got = Client::new().get(url, &[]).await.unwrap();
    assert_eq!(
        (got.status, got.header("content-type")),
        (200, "application/json"),
        "{url}"
    );
    got.json()
}

fn decoded(text: &str) -> Vec<u8> {
    BASE64_URL_SAFE_NO_PAD.decode(text).unwrap()
}

#[tokio::test]
async fn discovery_names_the_issuer_the_endpoints_and_the_key_that_signs() {
    let server = Server::start(Config::default()).await.unwrap();
    let issuer = format!("{}{REALM}", server.auth_url());
    let found = json(&format!("{issuer}/.well-known/openid-configuration")).await;
    assert_eq!(found["issuer"], issuer);
    assert_eq!(found["token_endpoint"], token_url(&server));
    assert_eq!(
        found["id_token_signing_alg_values_supported"],
        serde_json::json!(["ES256"])
    );

    // The key is there before the first token, and the same after it and after a reset.
    let at = found["jwks_uri"].as_str().unwrap();
    let keys = json(at).await;
    let token = Client::new().token(&server).await;
    server.reset(tds_sim::Part::ALL);
    assert_eq!(keys, json(at).await);
    let [key] = &keys["keys"].as_array().unwrap()[..] else {
        panic!("{keys}")
    };
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let (head, claims) = signed.split_once('.').unwrap();
    let head: Value = serde_json::from_slice(&decoded(head)).unwrap();
    let claims: Value = serde_json::from_slice(&decoded(claims)).unwrap();
    assert_eq!((&head["kid"], &head["alg"]), (&key["kid"], &key["alg"]));
    assert_eq!(claims["iss"], issuer);
    let part = |name: &str| decoded(key[name].as_str().unwrap());
    let point = [vec![4], part("x"), part("y")].concat();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .verify(signed.as_bytes(), &decoded(signature))
        .unwrap();
}

#[tokio::test]
async fn the_issuer_is_the_host_that_the_client_named() {
    let server = Server::start(Config::default()).await.unwrap();
    let issuer = format!(
        "{}{REALM}",
        server.auth_url().replace("127.0.0.1", "localhost")
    );
    let found = json(&format!("{issuer}/.well-known/openid-configuration")).await;
    assert_eq!(found["issuer"], issuer);
    assert_eq!(
        found["jwks_uri"],
        format!("{issuer}/protocol/openid-connect/certs")
    );
}

#[tokio::test]
async fn introspection_tells_an_active_token_and_needs_the_secret() {
    let server = Server::start(Config::default()).await.unwrap();
    let client = Client::new();
    let token = client.token(&server).await;
    let (id, secret) = (server.client_id(), server.client_secret());
    let ask = async |token: &str, secret: &str| {
        let url = format!("{}/introspect", token_url(&server));
        let form = format!("token={token}&client_id={id}&client_secret={secret}");
        let got = client.post(&url, form).await.unwrap();
        (got.status, got.json())
    };
    let (status, claims) = ask(&token, secret).await;
    assert_eq!(
        (status, &claims["active"], &claims["client_id"]),
        (200, &true.into(), &id.into())
    );
    let inactive = (200, serde_json::json!({ "active": false }));
    assert_eq!(ask("a.b.c", secret).await, inactive);
    assert_eq!(ask(&token, "wrong").await.0, 401);
    server.revoke_all();
    assert_eq!(ask(&token, secret).await, inactive);
    // None of these is a token request.
    assert_eq!(server.ledger().summary().token_posts, 1);
    assert_eq!(server.ledger().summary().data_calls, 0);
}
