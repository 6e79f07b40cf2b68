//! The methods of client authentication, checked by the simulated token endpoint.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tds_sim::{Config, Sim};
use tokio::time::advance;
use tower_oidc_cc::{Assertion, Credentials, TokenEndpoint, TokenSource};

fn tokens(sim: &Sim, credentials: Credentials, scope: &str) -> TokenSource {
    let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect").unwrap();
    let client = sim.clone();
    TokenSource::builder(endpoint, credentials)
        .scope(scope)
        .build(tower::service_fn(move |request: Request<Full<Bytes>>| {
            tower::ServiceExt::oneshot(client.clone(), request)
        }))
}

#[tokio::test(start_paused = true)]
async fn a_secret_gets_a_token_by_form_and_by_header_and_no_other_method_is_tried() {
    let sim = Sim::new(Config::default());
    let (id, secret) = (sim.client_id(), sim.client_secret());
    for credentials in [Credentials::new, Credentials::basic] {
        let right = credentials(id, secret).unwrap();
        tokens(&sim, right, "email").ready().await.unwrap();
        let wrong = credentials(id, "wrong").unwrap();
        let error = tokens(&sim, wrong, "email").ready().await.unwrap_err();
        assert_eq!(error.oauth_error(), Some("unauthorized_client"));
    }
    let seen = sim.ledger().summary();
    assert_eq!((seen.tokens_issued, seen.token_posts), (2, 4));
}

#[tokio::test(start_paused = true)]
async fn each_attempt_sends_a_new_assertion() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sent = Arc::clone(&seen);
    let client = tower::service_fn(move |request: Request<Full<Bytes>>| {
        let sent = Arc::clone(&sent);
        async move {
            let form = request.into_body().collect().await?.to_bytes();
            let mut fields = form_urlencoded::parse(&form).into_owned();
            let statement = fields.find(|(name, _)| name == "client_assertion");
            sent.lock().unwrap().push(statement.unwrap().1);
            let reply = r#"{"access_token":"t","token_type":"Bearer","expires_in":5}"#;
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(reply)))
        }
    });
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let assertion = Assertion::from_pem(key.as_bytes()).unwrap();
    let credentials = Credentials::private_key_jwt("client", assertion).unwrap();
    let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect").unwrap();
    let tokens = TokenSource::builder(endpoint, credentials).build(client);
    for _ in 0..3 {
        tokens.ready().await.unwrap();
        advance(Duration::from_secs(5)).await;
    }
    let seen = seen.lock().unwrap().clone();
    let different: BTreeSet<_> = seen.iter().collect();
    assert!(seen.len() >= 3 && different.len() == seen.len(), "{seen:?}");
}
