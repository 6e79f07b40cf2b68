//! The builder of a token source.

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{
    TokenSource,
    shared::{Settings, Shared},
};
use crate::{
    Parameters, Provider, RefreshPolicy, TokenEndpoint, TokenStore,
    clock::Clock,
    request::{Post, Terms},
    state::State,
    store::{BOUND, Named, PATIENCE},
};

/// Builds a [`TokenSource`].
#[derive(Debug)]
pub struct TokenSourceBuilder {
    endpoint: TokenEndpoint,
    provider: Provider,
    parameters: Parameters,
    timeout: Duration,
    /// As long as `timeout` if there is none.
    readiness: Option<Duration>,
    policy: RefreshPolicy,
    clock: Clock,
    store: Option<Named>,
}

// === impl TokenSourceBuilder ===

impl TokenSourceBuilder {
    pub(super) fn new(endpoint: TokenEndpoint, provider: Provider) -> Self {
        Self {
            endpoint,
            provider,
            parameters: Parameters::default(),
            timeout: TIMEOUT,
            readiness: None,
            policy: RefreshPolicy::default(),
            clock: Clock::default(),
            store: None,
        }
    }

    /// Requests a scope, an audience, resources or other fields; none of them by default.
    #[must_use]
    pub fn parameters(self, parameters: Parameters) -> Self {
        Self { parameters, ..self }
    }

    /// Bounds one token request, from its start to the last byte; 10 s by default.
    ///
    /// It starts when the HTTP client is ready, for which there is [`readiness`](Self::readiness).
    /// The deadline of a caller bounds that caller's wait, and not the request.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Bounds the wait for the HTTP client's readiness before a token request; as long as
    /// [`timeout`](Self::timeout) by default.
    ///
    /// Nothing is sent during that wait. Allow more to a client that limits requests.
    #[must_use]
    pub fn readiness(mut self, longest: Duration) -> Self {
        self.readiness = Some(longest);
        self
    }

    /// Chooses when a valid token is renewed; [`RefreshPolicy::Ahead`] by default.
    #[must_use]
    pub fn policy(mut self, policy: RefreshPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Shares the token with other processes that use the same store; none by default.
    ///
    /// A process without a token waits up to five seconds while another one requests it, and then
    /// requests one itself. Callers wait until a new token is saved, for two seconds at most.
    #[must_use]
    pub fn store(mut self, store: impl TokenStore) -> Self {
        self.store = Some(Named::new(store));
        self
    }

    /// Reads the wall clock through `now`, for tests that move it; the system's by default.
    ///
    /// A token expires by the first of two clocks: tokio's, which stops while a machine is
    /// suspended, and this one, which can be set.
    #[must_use]
    pub fn wall_clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Clock::with_wall(now);
        self
    }

    /// Builds the source over the HTTP client that carries the token requests.
    ///
    /// Any `Service` over `http` types is a client. It must not follow redirects, which would take
    /// the secret to another place. It must not log bodies, which hold the secret. Nothing is sent yet. The first use
    /// needs a tokio runtime with its timer enabled.
    #[must_use]
    pub fn build<S, B, R>(mut self, client: S) -> TokenSource
    where
        S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        S::Future: Send,
        B: From<Bytes> + 'static,
        R: Body + Send + 'static,
        R::Data: Send,
        R::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let readiness = self.readiness.unwrap_or(self.timeout);
        let store = self.store.take();
        let store = store.map(|store| store.of_kind(&self.endpoint, &self.parameters));
        // The first request may have to find the endpoint, by a request of its own.
        let requests = if self.endpoint.is_discovered() { 2 } else { 1 };
        let request = readiness.saturating_add(self.timeout);
        let request = request.saturating_mul(requests);
        let operations = BOUND.saturating_mul(3);
        let provided = self.timeout;
        let patience = request.saturating_add(provided).saturating_add(PATIENCE);
        let settings = Settings {
            provider: self.provider,
            timeout: self.timeout,
            patience: patience.saturating_add(operations),
            clock: self.clock.clone(),
            endpoint: self.endpoint.uri().clone(),
        };
        let terms = Terms {
            parameters: self.parameters,
            readiness,
            timeout: self.timeout,
            clock: self.clock,
        };
        let state = State::new(self.policy, fastrand::f64);
        let post = Arc::new(Post::new(client, self.endpoint, terms));
        let term = request.saturating_add(operations).min(LONGEST_TERM);
        TokenSource {
            shared: Shared::new(state, post, store, term, settings),
        }
    }
}

/// A Keycloak 26.5.0 answers in 5 ms. Ten seconds leave room for a TLS handshake with a lost packet
/// or two, and for a queue at the server.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest lease. A healthy endpoint answers sooner, and a process that was stopped with the lease
/// delays the others by this much. A slower endpoint gets one request each five seconds.
const LONGEST_TERM: Duration = Duration::from_secs(5);
