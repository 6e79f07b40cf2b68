//! The methods of client authentication, checked by the simulated token endpoint.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tds_sim::{Config, Sim};
use tokio::time::sleep;
use tower_oidc_cc::{Assertion, Credentials, TokenEndpoint, TokenSource};

use crate::layer::support::{Endpoint, endpoint::Reply, secs};

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
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let assertion = Assertion::from_pem(key.as_bytes()).unwrap();
    let credentials = Credentials::private_key_jwt("client", assertion).unwrap();
    let uri = TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect").unwrap();
    let endpoint = Endpoint::always(Reply::token(5));
    let tokens = TokenSource::builder(uri, credentials).build(endpoint.clone());
    for _ in 0..3 {
        tokens.ready().await.unwrap();
        sleep(secs(5)).await;
    }
    let forms = endpoint.posts().into_iter().map(|it| it.body);
    let different = forms.collect::<BTreeSet<_>>().len();
    assert_eq!(different, endpoint.count());
    assert!(different >= 3, "{different}");
}
