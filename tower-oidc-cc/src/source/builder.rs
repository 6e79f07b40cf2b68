//! The builder of a token source.

use std::{
    error::Error,
    fmt,
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
    Provider, RefreshPolicy, TokenEndpoint, TokenStore,
    clock::Clock,
    request::{Grant, Parameters},
    state::State,
    store::{BOUND, Erased, Leases, PATIENCE},
};

/// Builds a [`TokenSource`].
pub struct TokenSourceBuilder {
    endpoint: TokenEndpoint,
    provider: Provider,
    parameters: Parameters,
    timeout: Duration,
    policy: RefreshPolicy,
    clock: Clock,
    store: Option<Box<dyn Erased>>,
}

// === impl TokenSourceBuilder ===

impl TokenSourceBuilder {
    pub(super) fn new(endpoint: TokenEndpoint, provider: Provider) -> Self {
        Self {
            endpoint,
            provider,
            parameters: Parameters::default(),
            timeout: TIMEOUT,
            policy: RefreshPolicy::default(),
            clock: Clock::default(),
            store: None,
        }
    }

    /// Adds a field to the form of each token request: a `scope` (RFC 6749, section 3.3), a `resource`
    /// (RFC 8707), or the `audience` that some servers read; none by default.
    ///
    /// One source has one kind of token. Servers refuse a field that is there twice, and those of the
    /// grant and the client are there already.
    #[must_use]
    pub fn parameter(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.parameters.push((name.into(), value.into()));
        self
    }

    /// Bounds one token request, from the wait for the HTTP client to the last byte; 10 s by default.
    ///
    /// Allow more to a client that limits requests. The deadline of a caller bounds that caller's wait,
    /// and not the request.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
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
        self.store = Some(Box::new(store));
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
    pub fn build<S, B, R>(self, client: S) -> TokenSource
    where
        S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        S::Future: Send,
        B: From<Bytes> + 'static,
        R: Body + Send + 'static,
        R::Data: Send,
        R::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let Self {
            endpoint,
            parameters,
            timeout,
            clock,
            ..
        } = self;
        // The first request may have to find the endpoint, by a request of its own.
        let requests = if endpoint.is_discovered() { 2 } else { 1 };
        let request = timeout.saturating_mul(requests);
        let operations = BOUND.saturating_mul(3);
        let term = request.saturating_add(operations).min(LONGEST_TERM);
        let leases = self
            .store
            .map(|store| Leases::new(store, clock.clone(), term, &endpoint, &parameters));
        let settings = Settings {
            provider: self.provider,
            timeout,
            patience: [timeout, PATIENCE, operations]
                .into_iter()
                .fold(request, Duration::saturating_add),
            clock: clock.clone(),
            endpoint: endpoint.uri().clone(),
        };
        let state = State::new(self.policy, fastrand::f64);
        let grant = Grant::new(client, endpoint, parameters, timeout, clock);
        TokenSource {
            shared: Shared::new(state, grant, leases, settings),
        }
    }
}

impl fmt::Debug for TokenSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSourceBuilder")
            .field("endpoint", &self.endpoint)
            .field("timeout", &self.timeout)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// A Keycloak 26.5.0 answers in 5 ms. Ten seconds leave room for a TLS handshake with a lost packet
/// or two, and for a queue at the server.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest lease. A healthy endpoint answers sooner, and a process that was stopped with the lease
/// delays the others by this much. A slower endpoint gets one request each five seconds.
const LONGEST_TERM: Duration = Duration::from_secs(5);
