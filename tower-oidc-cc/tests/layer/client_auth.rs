//! The ways to prove a client, judged by the simulated token endpoint.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{sync::LazyLock, time::Duration};

use http_body_util::Full;
use rsa::{
    RsaPrivateKey,
    pkcs1::EncodeRsaPublicKey as _,
    pkcs8::{EncodePrivateKey as _, LineEnding},
    rand_core::OsRng,
};
use tds_sim::{Config, Sim};
use tokio::time::advance;
use tower_oidc_cc::{Assertion, Credentials, TokenEndpoint, TokenError, TokenSource};

static KEY: LazyLock<RsaPrivateKey> =
    LazyLock::new(|| RsaPrivateKey::new(&mut OsRng, 2048).unwrap());

fn tokens(sim: &Sim, credentials: Credentials, scope: &str) -> TokenSource {
    let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect").unwrap();
    let client = sim.clone();
    TokenSource::builder(endpoint, credentials)
        .parameter("scope", scope)
        .build(tower::service_fn(
            move |request: http::Request<Full<bytes::Bytes>>| {
                tower::ServiceExt::oneshot(client.clone(), request)
            },
        ))
}

async fn ready(sim: &Sim, credentials: Credentials) -> Result<(), TokenError> {
    tokens(sim, credentials, "email").ready().await
}

fn statement(sim: &Sim) -> Credentials {
    let public = KEY.to_public_key().to_pkcs1_der().unwrap();
    sim.set_public_key(sim.client_id(), public.as_bytes())
        .unwrap();
    let private = KEY.to_pkcs8_pem(LineEnding::LF).unwrap();
    let assertion = Assertion::from_pem(private.as_bytes()).unwrap();
    Credentials::private_key_jwt(sim.client_id(), assertion).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_secret_gets_a_token_by_form_and_by_header() {
    let sim = Sim::new(Config::default());
    let (id, secret) = (sim.client_id(), sim.client_secret());
    ready(&sim, Credentials::new(id, secret).unwrap())
        .await
        .unwrap();
    ready(&sim, Credentials::basic(id, secret).unwrap())
        .await
        .unwrap();
    assert_eq!(sim.ledger().summary().tokens_issued, 2);
}

#[tokio::test(start_paused = true)]
async fn one_way_is_tried_and_no_other() {
    let sim = Sim::new(Config::default());
    for credentials in [Credentials::new, Credentials::basic] {
        let credentials = credentials(sim.client_id(), "wrong").unwrap();
        let error = ready(&sim, credentials).await.unwrap_err();
        assert_eq!(error.oauth_error(), Some("unauthorized_client"));
    }
    assert_eq!(sim.ledger().summary().token_posts, 2);
}

#[tokio::test(start_paused = true)]
async fn each_attempt_brings_a_new_statement() {
    let sim = Sim::new(Config::default());
    sim.set_expires_in(5);
    let tokens = tokens(&sim, statement(&sim), "email");
    for _ in 0..3 {
        tokens.ready().await.unwrap();
        // Statements are dated by a clock that does not pause: not far from the endpoint's.
        advance(Duration::from_secs(5)).await;
    }
    let seen = sim.ledger().summary();
    assert!(seen.tokens_issued >= 3);
    assert_eq!(seen.tokens_issued, seen.token_posts, "none was refused");
}

#[tokio::test(start_paused = true)]
async fn a_statement_by_a_key_that_the_server_does_not_know_is_a_refusal() {
    let sim = Sim::new(Config::default());
    drop(statement(&sim));
    let other = RsaPrivateKey::new(&mut OsRng, 2048).unwrap();
    let pem = other.to_pkcs8_pem(LineEnding::LF).unwrap();
    let assertion = Assertion::from_pem(pem.as_bytes()).unwrap();
    let credentials = Credentials::private_key_jwt(sim.client_id(), assertion).unwrap();
    let error = ready(&sim, credentials).await.unwrap_err();
    assert_eq!(error.oauth_error(), Some("invalid_client"));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_scope_is_a_refusal() {
    let sim = Sim::new(Config::default());
    let credentials = || Credentials::new(sim.client_id(), sim.client_secret()).unwrap();
    let ask = |scope| tokens(&sim, credentials(), scope);
    ask("email").ready().await.unwrap();
    let error = ask("nope").ready().await.unwrap_err();
    assert_eq!(error.oauth_error(), Some("invalid_scope"));
}
