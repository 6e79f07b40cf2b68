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
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, StatusCode};
use tokio::task::{JoinHandle, JoinSet};
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_oidc_cc::{
    BearerAuthLayer, Credentials, CredentialsProvider, Error, Origin, TokenEndpoint, TokenError,
    TokenSource,
};

use self::{away::Away, server::Server};
use crate::{
    keycloak::wire::{self, Body, skip},
    layer::support::is_worth_a_resend,
};

type Failed = Error;

/// A client of the data route, with tokens of the same server.
#[derive(Clone)]
struct Data {
    layer: BearerAuthLayer,
    tokens: TokenSource,
    address: String,
}

impl Data {
    fn new(server: &Server, provider: impl Into<CredentialsProvider>) -> Self {
        let tokens = TokenSource::builder(server.endpoint(), provider).build(wire::client());
        let address = server.address("/data");
        let origin = Origin::from_uri(&address.parse().unwrap()).unwrap();
        Self {
            layer: BearerAuthLayer::new(tokens.clone(), [origin]),
            tokens,
            address,
        }
    }

    /// One call, sent once more if the layer marks it as worth a resend.
    async fn call(&self) -> Result<StatusCode, Failed> {
        let service = self.layer.layer(wire::client());
        let request = || Request::get(&self.address).body(Body::default()).unwrap();
        let mut response = service.clone().oneshot(request()).await?;
        if is_worth_a_resend(&response) {
            response = service.oneshot(request()).await?;
        }
        Ok(response.status())
    }

    /// One call that is answered without the server.
    async fn call_nobody(&self) -> Result<(), TokenError> {
        let below = service_fn(async |_: Request<Body>| {
            Ok::<_, std::convert::Infallible>(Response::new(()))
        });
        let request = Request::get(&self.address).body(Body::default()).unwrap();
        let called = self.layer.layer(below).oneshot(request).await;
        called
            .map(drop)
            .map_err(|error| error.token().expect("it does not fail").clone())
    }

    /// The results of so many calls at once.
    async fn calls(&self, count: usize) -> Vec<Result<StatusCode, Failed>> {
        let calls: JoinSet<_> = (0..count)
            .map(|_| {
                let data = self.clone();
                async move { data.call().await }
            })
            .collect();
        calls.join_all().await
    }
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
        let data = Data::new(&server, credentials("wrong"));
        for call in data.calls(100).await {
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
        let data = Data::new(&server, credentials("secret"));
        assert_eq!(data.call().await.unwrap(), 200);
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
        let error = data.call_nobody().await.unwrap_err();
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
        let data = Data::new(&server, provider);
        assert!(all_are_served(&data.calls(20).await));
        server.stop();
        *vault.lock().unwrap() = "rotated";
        server.start("rotated").await;
        // The server has lost the token. Its refusals cause a refresh.
        assert!(all_are_served(&data.calls(20).await));
        assert_eq!(server.posts(2).await, [200, 200]);
        assert_eq!(reads.load(Ordering::Relaxed), 2);
    }
}

/// Calls without a pause, each resent once if the layer marks it as worth a resend. `stop` panics if a
/// call has failed.
struct Load(Arc<AtomicBool>, JoinHandle<usize>);

impl Load {
    fn of(data: &Data) -> Self {
        let (data, is_over) = (data.clone(), Arc::<AtomicBool>::default());
        let stop = Arc::clone(&is_over);
        let calls = tokio::spawn(async move {
            let mut served = 0;
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(data.call().await.unwrap(), 200);
                served += 1;
            }
            served
        });
        Self(is_over, calls)
    }

    async fn stop(self) {
        self.0.store(true, Ordering::Relaxed);
        assert!(self.1.await.unwrap() > 0);
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
        let data = Data::new(&server, provider);
        assert_eq!(data.call().await.unwrap(), 200);
        let load = Load::of(&data);
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
        load.stop().await;
        assert_eq!(server.posts(3).await, [200, 401, 200]);
    }
}

#[tokio::test]
async fn key_removal_under_load_costs_one_request_and_no_call() {
    for mut server in Server::all_signed("keys").await {
        let data = Data::new(&server, credentials("secret"));
        assert_eq!(data.call().await.unwrap(), 200);
        let load = Load::of(&data);
        server.change("keys").await;
        assert_eq!(server.posts(2).await, [200, 200]);
        assert!(all_are_served(&data.calls(50).await));
        load.stop().await;
        assert_eq!(server.posts(2).await, [200, 200]);
    }
}

const HOUR: Duration = Duration::from_secs(3_600);
