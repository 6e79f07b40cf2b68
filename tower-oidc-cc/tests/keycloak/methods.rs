//! The methods of client authentication, and grants whose form a provider fills.

use std::{
    future::ready,
    time::{Duration, SystemTime},
};

use tower_oidc_cc::{Assertion, Credentials, CredentialsProvider, TokenError, TokenSource};

use crate::keycloak::{data::Data, realm, server::Keycloak, wire};

fn assertion() -> Assertion {
    Assertion::from_pem(realm::private_key().as_bytes()).unwrap()
}

fn statement(assertion: Assertion) -> Credentials {
    Credentials::private_key_jwt("statement", assertion).unwrap()
}

#[tokio::test]
async fn special_characters_in_id_and_secret_are_accepted() {
    let Some(keycloak) = Keycloak::shared().await else {
        return;
    };
    let (id, secret) = ("a:b%c+d&é", "100%+=:&é/?#~\"\\'");
    for credentials in [Credentials::new(id, secret), Credentials::basic(id, secret)] {
        let data = Data::new(keycloak, "awkward", credentials.unwrap());
        assert_eq!(data.call().await.unwrap(), 200);
    }
    assert_eq!(keycloak.posts("awkward").await, [200, 200]);
}

#[tokio::test]
async fn signed_assertion_gets_a_token_without_a_secret() {
    let Some(keycloak) = Keycloak::shared().await else {
        return;
    };
    // For the token endpoint, and for the issuer.
    let issuer = keycloak.place("");
    let issuer = assertion().audience(issuer.trim_end_matches('/'));
    let pss = assertion().pss().unwrap().key_id("pss");
    for credentials in [
        statement(assertion()),
        statement(issuer),
        Credentials::private_key_jwt("pss", pss).unwrap(),
    ] {
        let data = Data::new(keycloak, "statement", credentials);
        assert_eq!(data.call().await.unwrap(), 200);
    }
    assert_eq!(keycloak.posts("statement").await, [200, 200, 200]);
}

/// Keycloak allows for 15 s ahead, and refuses an assertion that is dated more than 60 s back.
#[tokio::test]
async fn assertion_of_a_client_with_a_wrong_clock_is_accepted() {
    let Some(keycloak) = Keycloak::shared().await else {
        return;
    };
    for (ahead, behind) in [(40, 0), (0, 25)] {
        let wall = move || now() + Duration::from_secs(ahead) - Duration::from_secs(behind);
        let tokens = TokenSource::builder(keycloak.endpoint("clock"), statement(assertion()))
            .wall_clock(wall)
            .build(wire::client());
        tokens.ready().await.unwrap();
    }
    assert_eq!(keycloak.posts("clock").await, [200, 200]);
}

/// The client's own token is the subject, so that this needs no second client.
#[tokio::test]
async fn token_is_exchanged_by_the_fields_of_a_provider() {
    let Some(keycloak) = Keycloak::shared().await else {
        return;
    };
    let client = || Credentials::basic("exchange", "secret-of-exchange").unwrap();
    let subject =
        TokenSource::builder(keycloak.endpoint("subject"), client()).build(wire::client());
    let exchanging = CredentialsProvider::from_fn(move || {
        let subject = subject.clone();
        async move {
            let token = subject.token().await?;
            Ok::<_, TokenError>(
                client()
                    .field(
                        "grant_type",
                        "urn:ietf:params:oauth:grant-type:token-exchange",
                    )
                    .field(
                        "subject_token_type",
                        "urn:ietf:params:oauth:token-type:access_token",
                    )
                    .field("subject_token", token.secret()),
            )
        }
    });
    let data = Data::new(keycloak, "exchange", exchanging);
    assert_eq!(data.call().await.unwrap(), 200);
    assert_eq!(keycloak.posts("exchange").await, [200]);
}

/// An assertion that another system signed, as in a federation of workloads.
#[tokio::test]
async fn foreign_assertion_proves_a_client_id_alone() {
    let Some(keycloak) = Keycloak::shared().await else {
        return;
    };
    let key = jsonwebtoken::EncodingKey::from_rsa_pem(realm::private_key().as_bytes()).unwrap();
    let issuer = keycloak.place("").trim_end_matches('/').to_owned();
    let provider = CredentialsProvider::from_fn(move || {
        let now = now().duration_since(SystemTime::UNIX_EPOCH);
        let claims = serde_json::json!({
            "iss": "statement", "sub": "statement", "aud": issuer, "jti": "of another system",
            "exp": now.unwrap().as_secs() + 60,
        });
        let header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::RS256);
        let signed = jsonwebtoken::encode(&header, &claims, &key).unwrap();
        let credentials = Credentials::empty("statement").field("client_id", "statement");
        ready(Ok::<_, TokenError>(
            credentials
                .field("client_assertion_type", BEARER)
                .field("client_assertion", signed),
        ))
    });
    let data = Data::new(keycloak, "foreign", provider);
    assert_eq!(data.call().await.unwrap(), 200);
    assert_eq!(keycloak.posts("foreign").await, [200]);
}

#[expect(
    clippy::disallowed_methods,
    reason = "a real server reads the real clock"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

const BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
