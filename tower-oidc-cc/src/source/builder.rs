//! The builder of a token source.

use std::{
    error::Error,
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{Settings, TokenSource, shared::Shared};
use crate::{
    Parameters, Provider, RefreshPolicy, TokenEndpoint, TokenStore,
    clock::Clock,
    request::{Post, Terms},
    state::{Budget, Life},
    store::{BOUND, Named},
};

/// Collects what a [`TokenSource`] handle is made of.
#[derive(Debug)]
pub struct TokenSourceBuilder {
    endpoint: TokenEndpoint,
    provider: Provider,
    parameters: Parameters,
    timeout: Duration,
    /// For how long the HTTP client may be unready, if not for a timeout.
    readiness: Option<Duration>,
    policy: RefreshPolicy,
    budget: Budget,
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
            budget: Budget::default(),
            clock: Clock::default(),
            store: None,
        }
    }

    /// Asks for a scope, an audience, resources or other fields; for none of them by default.
    #[must_use]
    pub fn parameters(self, parameters: Parameters) -> Self {
        Self { parameters, ..self }
    }

    /// Bounds one token request, from its start to the last byte; 10 s by default.
    ///
    /// It is the request's own: no caller's patience shortens or lengthens it. It starts when the
    /// HTTP client is ready, for which there is [`readiness`](Self::readiness). There is none for
    /// the connect alone, since this one covers it: a shorter one is the HTTP client's to set.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Bounds the wait for the HTTP client's readiness before a token request; as long as
    /// [`timeout`](Self::timeout) by default.
    ///
    /// Nothing is sent during that wait. Allow more of it to a client that limits requests, and
    /// whose permits may be long in coming.
    #[must_use]
    pub fn readiness(mut self, longest: Duration) -> Self {
        self.readiness = Some(longest);
        self
    }

    /// Chooses when a token that still works is replaced; [`RefreshPolicy::Ahead`] by default.
    #[must_use]
    pub fn policy(mut self, policy: RefreshPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Caps the token requests in any hour; at 240 by default.
    ///
    /// The backoff after failures, the distance between dead tokens and the policies are all gentler
    /// than this; it is the bound that holds if they are wrong together. Whoever meets it gets a
    /// typed error with the time to wait: [`TokenError::is_over_budget`](crate::TokenError::is_over_budget).
    /// Half of the hour's requests may come at once, the rest is spread over the hour, so that a
    /// spent budget is never silence for an hour. While a token works, its renewal leaves one
    /// request for when there is none.
    ///
    /// What is said here is a hard bound, whatever the server does: with tokens that live less than
    /// an hour, allow two for each life. The default alone allows more while tokens live less than
    /// a minute: a request that brings one is paid for in half of its life, or in two seconds if
    /// that is longer. Without this tokens of five seconds would be refused to most calls.
    #[must_use]
    pub fn budget(mut self, per_hour: NonZeroU32) -> Self {
        self.budget = Budget::per_hour(per_hour);
        self
    }

    /// Shares the token with the other processes that are given the same store; none by default.
    ///
    /// Without one, each process asks for itself: a fleet of fifty makes a hundred requests a day.
    /// With one, a process that has no token waits while another gets one, for
    /// [`readiness`](Self::readiness), [`timeout`](Self::timeout) and six seconds at most, or twice
    /// the first two where the endpoint is [discovered](TokenEndpoint::discover), but for no longer
    /// than five minutes; then it asks for itself. Whoever waits for a token waits until it is saved,
    /// for two seconds at most.
    #[must_use]
    pub fn store(mut self, store: impl TokenStore) -> Self {
        self.store = Some(Named::new(store));
        self
    }

    /// Reads the wall clock through `now`, for tests that move it; the system's by default.
    ///
    /// A token ends when the first of two clocks says so: tokio's, which stops while a machine is
    /// suspended, and this one, which can be set. Each call reads this one.
    #[must_use]
    pub fn wall_clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Clock::with_wall(now);
        self
    }

    /// Builds the handle over the HTTP client that carries the token requests.
    ///
    /// Any client will do that is a `Service` over `http` types. It should not follow redirects,
    /// which would take the secret to another place, nor log bodies, which hold it: this crate does
    /// neither, but cannot see what happens inside the client. Nothing is sent yet,
    /// and no runtime is needed yet; the first use needs a tokio runtime with its timer enabled.
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
        let terms = Terms {
            parameters: self.parameters,
            readiness,
            timeout: self.timeout,
            clock: self.clock.clone(),
        };
        // Until the client is ready and the request is over, twice where the first one finds the
        // endpoint, and for three words with the store.
        let requests = if self.endpoint.is_discovered() { 2 } else { 1 };
        let request = readiness.saturating_add(self.timeout);
        let term = request.saturating_mul(requests);
        let term = term.saturating_add(BOUND.saturating_mul(3));
        let settings = Settings {
            provider: self.provider,
            timeout: self.timeout,
            term: term.min(LONGEST_TERM),
            // For the provider, another's lease, and this process's own request.
            patience: self.timeout.saturating_add(term.saturating_mul(2)),
            clock: self.clock,
            store,
        };
        let life = Life::new(self.policy, self.budget, fastrand::f64);
        let post = Post::new(client, self.endpoint, terms);
        TokenSource {
            shared: Shared::new(life, Arc::new(post), settings),
        }
    }
}

/// A Keycloak answers in milliseconds when it can (5 ms of work, measured on 26.5.0); ten seconds
/// leave room for a TLS handshake with a lost packet or two and for a queue at the server.
const TIMEOUT: Duration = Duration::from_secs(10);
/// So long a fleet waits for a process that was killed with the lease. Where a request takes longer, since its
/// client has to wait for its turn in an hour's quota, others then ask beside it.
const LONGEST_TERM: Duration = Duration::from_secs(5 * 60);
