//! The layer beside two more authorization servers: oidc-provider, and one made with Authlib.
//!
//! `.ci/servers` installs them; without one, each test prints SKIPPED. Token requests are counted in
//! the log of the server.

#![cfg(unix)]
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

mod away;
mod server;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::StatusCode;
use tokio::task::JoinSet;
use tower_oidc_cc::{Credentials, CredentialsProvider, TokenEndpoint, TokenSource};

use self::{away::Away, server::Server};
use crate::keycloak::{
    data::{Data, Failed},
    trouble::{HOUR, load_again, token_error},
    wire::{self, skip},
};

/// A client of the data route, with tokens of the same server.
fn data(server: &Server, provider: impl Into<CredentialsProvider>) -> Data {
    let tokens = TokenSource::builder(server.endpoint(), provider).build(wire::client());
    Data::of(tokens, server.address("/data"))
}

/// The results of so many calls at once, each sent once more if the layer marks it as worth a resend.
async fn calls(data: &Data, count: usize) -> Vec<Result<StatusCode, Failed>> {
    let call = |data: Data| async move { data.call_again().await };
    let calls = (0..count).map(|_| call(data.clone()));
    calls.collect::<JoinSet<_>>().join_all().await
}

fn credentials(secret: &str) -> Credentials {
    Credentials::basic("client", secret).unwrap()
}

fn all_are_served(calls: &[Result<StatusCode, Failed>]) -> bool {
    calls.iter().all(|call| matches!(call, Ok(StatusCode::OK)))
}

#[tokio::test]
async fn a_wrong_secret_costs_one_request_and_names_the_next_step() {
    for server in Server::all("wrong", 86_400).await {
        let data = data(&server, credentials("wrong"));
        for call in calls(&data, 100).await {
            let error = call.expect_err("the secret is wrong");
            let error = error.token().expect("an error of the token");
            assert_eq!(error.oauth_error(), Some("invalid_client"));
            assert!(error.to_string().contains("check the client id"), "{error}");
        }
        assert_eq!(server.posts(1).await, [401]);
    }
}

/// Authlib's example has no document, and answers 404.
#[tokio::test]
async fn endpoint_of_an_issuer_is_discovered() {
    for server in Server::all("issuer", 86_400).await {
        let issuer = TokenEndpoint::discover(&server.address("")).unwrap();
        let tokens = TokenSource::builder(issuer, credentials("secret")).build(wire::client());
        match tokens.ready().await {
            Ok(()) => assert_eq!(server.posts(1).await, [200]),
            Err(error) => assert!(error.to_string().contains("404"), "{error}"),
        }
    }
}

#[tokio::test]
async fn outage_fails_no_call_until_the_token_expires() {
    for mut server in Server::all("outage", 86_400).await {
        let data = data(&server, credentials("secret"));
        assert_eq!(data.call_again().await.unwrap(), 200);
        server.stop();
        let away = Away::at(server.port()).await;
        // The renewal fails, and the token stays in use.
        skip(20 * HOUR).await;
        for _ in 0..20 {
            data.call_nobody().await.unwrap();
            skip(Duration::from_secs(30)).await;
        }
        // Then it has expired.
        skip(5 * HOUR).await;
        let error = token_error(data.call_nobody().await.unwrap_err());
        assert!(
            error.is_transient() && error.retry_after().is_some(),
            "{error}"
        );
        let requests = away.leave().await;
        assert!((1..=60).contains(&requests), "{requests}");
        server.start("secret").await;
        skip(Duration::from_secs(30)).await;
        data.tokens.ready().await.unwrap();
        assert_eq!(server.posts(2).await, [200, 200]);
    }
}

#[tokio::test]
async fn restart_with_new_keys_and_secret_costs_one_request() {
    for mut server in Server::all("rotation", 86_400).await {
        let vault = Arc::new(Mutex::new("secret"));
        let reads = Arc::new(AtomicUsize::new(0));
        let provider = CredentialsProvider::from_fn({
            let (vault, reads) = (Arc::clone(&vault), Arc::clone(&reads));
            move || {
                reads.fetch_add(1, Ordering::Relaxed);
                let secret = *vault.lock().unwrap();
                async move { Credentials::basic("client", secret) }
            }
        });
        let data = data(&server, provider);
        assert!(all_are_served(&calls(&data, 20).await));
        server.stop();
        *vault.lock().unwrap() = "rotated";
        server.start("rotated").await;
        // The server has lost the token. Its refusals cause a refresh.
        assert!(all_are_served(&calls(&data, 20).await));
        assert_eq!(server.posts(2).await, [200, 200]);
        assert_eq!(reads.load(Ordering::Relaxed), 2);
    }
}

#[tokio::test]
async fn secret_rotation_under_load_fails_no_call() {
    for mut server in Server::all("secret", 86_400).await {
        let vault = Arc::new(Mutex::new("secret"));
        let provider = CredentialsProvider::from_fn({
            let vault = Arc::clone(&vault);
            move || {
                let secret = *vault.lock().unwrap();
                async move { Credentials::basic("client", secret) }
            }
        });
        let data = data(&server, provider);
        assert_eq!(data.call_again().await.unwrap(), 200);
        let load = load_again(&data);
        server.change("secret rotated").await;
        // The renewal uses the old secret and is refused. The token stays in use.
        skip(20 * HOUR).await;
        assert_eq!(server.posts(2).await, [200, 401]);
        // The log shows the refusal before the client has read it.
        while data.tokens.health().last_error.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        *vault.lock().unwrap() = "rotated";
        skip(Duration::from_secs(120)).await;
        assert_eq!(server.posts(3).await, [200, 401, 200]);
        load.served(100).await;
        assert_eq!(load.failures(), Vec::<String>::new());
        drop(load);
        assert_eq!(server.posts(3).await, [200, 401, 200]);
    }
}

#[tokio::test]
async fn key_removal_under_load_costs_one_request_and_no_call() {
    for mut server in Server::all_signed("keys").await {
        let data = data(&server, credentials("secret"));
        assert_eq!(data.call_again().await.unwrap(), 200);
        let load = load_again(&data);
        server.change("keys").await;
        assert_eq!(server.posts(2).await, [200, 200]);
        assert!(all_are_served(&calls(&data, 50).await));
        load.served(100).await;
        assert_eq!(load.failures(), Vec::<String>::new());
        drop(load);
        assert_eq!(server.posts(2).await, [200, 200]);
    }
}
