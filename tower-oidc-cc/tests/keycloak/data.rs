//! A data service that checks tokens: the server's user information endpoint.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use http::{HeaderValue, Request, StatusCode};
use hyper_util::client::legacy::ResponseFuture;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_oidc_cc::{BearerAuthLayer, CredentialsProvider, Error, Origin, TokenSource};

use crate::{
    keycloak::{
        server::{DATA, Keycloak},
        wire::{self, Body, Http},
    },
    layer::support::is_worth_a_resend,
};

#[derive(Clone)]
pub(crate) struct Data {
    layer: BearerAuthLayer,
    pub(crate) tokens: TokenSource,
    client: Http,
    uri: String,
    seen: Arc<Mutex<HashSet<HeaderValue>>>,
}

pub(crate) type Failed = Error;

// === impl Data ===

impl Data {
    pub(crate) fn new(
        keycloak: &Keycloak,
        test: &str,
        credentials: impl Into<CredentialsProvider>,
    ) -> Self {
        let tokens = TokenSource::builder(keycloak.endpoint(test), credentials)
            // The server gives user information only to tokens with this scope.
            .scope("openid")
            .build(wire::client());
        Self::of(tokens, keycloak.place(&format!("{DATA}?test={test}")))
    }

    /// The data at this address.
    pub(crate) fn of(tokens: TokenSource, uri: String) -> Self {
        let origin = Origin::from_uri(&uri.parse().unwrap()).unwrap();
        Self {
            layer: BearerAuthLayer::new(tokens.clone(), [origin]),
            tokens,
            client: wire::client(),
            uri,
            seen: Arc::default(),
        }
    }

    /// One call, whose token the server checks.
    pub(crate) async fn call(&self) -> Result<StatusCode, Failed> {
        let below = service_fn(|request| self.send(request));
        let response = self.layer.layer(below).oneshot(self.request()).await?;
        Ok(response.status())
    }

    /// One call, sent once more if the layer marks it as worth repeating.
    pub(crate) async fn call_again(&self) -> Result<StatusCode, Failed> {
        let below = service_fn(|request| self.send(request));
        let service = self.layer.layer(below);
        let mut response = service.clone().oneshot(self.request()).await?;
        if is_worth_a_resend(&response) {
            response = service.oneshot(self.request()).await?;
        }
        Ok(response.status())
    }

    /// One call, answered without a server, also when it is stopped.
    pub(crate) async fn call_nobody(&self) -> Result<(), Failed> {
        let below = service_fn(async |request: Request<Body>| {
            self.note(&request);
            Ok::<_, std::convert::Infallible>(http::Response::new(()))
        });
        self.layer.layer(below).oneshot(self.request()).await?;
        Ok(())
    }

    /// How many tokens have been sent.
    pub(crate) fn tokens_seen(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// The one token that has been sent.
    pub(crate) fn token(&self) -> String {
        let seen = self.seen.lock().unwrap();
        assert_eq!(seen.len(), 1);
        let header = seen.iter().next().unwrap().to_str().unwrap();
        header.strip_prefix("Bearer ").unwrap().to_owned()
    }

    fn request(&self) -> Request<Body> {
        Request::get(&self.uri).body(Body::default()).unwrap()
    }

    fn send(&self, request: Request<Body>) -> ResponseFuture {
        self.note(&request);
        self.client.request(request)
    }

    fn note(&self, request: &Request<Body>) {
        let header = request.headers()["authorization"].clone();
        self.seen.lock().unwrap().insert(header);
    }
}
