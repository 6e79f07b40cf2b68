//! The token source, a handle that layers, services and programs share, and its builder.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
use http_body::Body;
use tower_service::Service;
use tower_tds_outcome::{Secrets, place};

use crate::{
    clock::Clock,
    credentials::CredentialsProvider,
    endpoint::TokenEndpoint,
    error::{BoxError, TokenError},
    reply::AccessToken,
    request::{Grant, TokenRequests, USER_AGENT, exchange},
    state::State,
    store::{BoxStore, TokenStore},
    task::{LOOK_EVERY, Owner},
};

/// Keeps one valid token for all clones of this handle.
///
/// Build one source for each set of credentials. Its first use spawns a task on the current runtime,
/// which by default renews the token at 70 to 80 % of its life. When you drop the last handle (sources,
/// layers, services and calls hold one), the task ends, after a token request that is in progress.
///
/// # Load
///
/// Token requests of one source, for tokens of 24 hours:
///
/// | event | token requests |
/// |---|---|
/// | a day | 2 |
/// | a day with [`refresh_before`](TokenSourceBuilder::refresh_before) of 20 hours, so every 4 hours | 7 at most |
/// | a thousand concurrent calls with no token, or with a refused one | 1 |
/// | a day, with any number of processes that share a [`TokenStore`](crate::TokenStore) | 2 |
/// | an hour without the endpoint, under load | about 240, at random intervals of at most 30 s |
/// | the life of a token that the endpoint returns again and again until its end | 10 at most |
/// | wrong credentials | 1 in one to two minutes |
/// | an hour in which the service refuses tokens, whatever the text of its 401 | 16 at most |
/// | a day in which a role stays missing | 26 to 30 |
///
/// # Two tokens
///
/// If the clock of your gateway is behind that of the authorization server, it refuses a new token as issued in the
/// future. So a renewed token does not replace one that is still good: the older one is used until it is refused, or
/// until half of what it had left is over. When one of the two is refused, the other is used, and once the newer one is
/// accepted, it is alone. At the start, your first success comes when the gateway's clock has reached the first token.
///
/// # Refused tokens
///
/// A 401 may mean that the token was revoked, that the route refuses all tokens, or that the service erred. If the token
/// was accepted before, or comes from a store and is older than two minutes, a new one is requested at once. If it was
/// never accepted, its clock may be behind, so one other token is requested, both are tried in turn, and further ones
/// follow minutes apart.
///
/// After refusals there are at most 16 token requests an hour: four of them at once, the others spread over what is left
/// of the hour. So tokens that die after 225 s or later are all replaced at once. A route that refuses every token takes
/// the first four; after them, a refresh needs more refusals in a row than a token has survived. If a refresh fails, the
/// next refusal after the backoff repeats it.
///
/// Until the refresh has a result, the refused call is held, so that your resend carries the new token. Other calls
/// wait for one second at most and then send the refused token. See [`Error`](crate::Error) for the resend.
///
/// # Missing roles
///
/// If a call lacks a role and its token is older than five minutes, the call is held for a new token, because the role may
/// have been granted since. While the role stays missing, the next such request comes after ten minutes, then 20, 40, and
/// an hour. Other calls go on with the token, and such requests take none of the 16.
///
/// # Cancel safety
///
/// Dropping a caller ends only its own wait, because the source's task makes the token requests. If that
/// task's runtime ends, the next caller starts another task, and another token request if one was in
/// flight.
///
/// # Panics
///
/// A wait for a token panics outside of a tokio runtime with a timer, as tokio's own timers do.
///
/// # Clone
///
/// Clones share the token, the task and the record of failures.
///
/// # Examples
///
/// ```
/// use bytes::Bytes;
/// use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
/// use http_body_util::Full;
/// use tower_oidc_cc::{Credentials, TokenEndpoint, TokenSource};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Any HTTP client that is a `Service` will do; this one is the server, too.
/// let client = tower::service_fn(|_: Request<Full<Bytes>>| async {
///     let reply = r#"{"access_token":"abc","token_type":"Bearer","expires_in":86400}"#;
///     Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(reply))))
/// });
/// let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect")?;
/// let tokens = TokenSource::builder(endpoint, Credentials::new("id", "secret")?).build(client);
///
/// // A start-up probe: fail before taking traffic, not after.
/// tokens.ready().await?;
///
/// // For protocols without a layer: a WebSocket's handshake, another HTTP client.
/// let token = tokens.token().await?;
/// assert_eq!(token.header(), "Bearer abc");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TokenSource {
    pub(crate) owner: Arc<Owner>,
}

/// Builds a [`TokenSource`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_oidc_cc::{Credentials, TokenEndpoint, TokenSource};
///
/// let endpoint = TokenEndpoint::discover("https://sso.example.com/realms/timetable")?;
/// let builder = TokenSource::builder(endpoint, Credentials::basic("my-client", "s3cr3t")?)
///     .scope("timetable:read")
///     .timeout(Duration::from_secs(20))
///     .refresh_before(Duration::from_secs(20 * 3_600));
/// # drop(builder);
/// # Ok::<(), tower_oidc_cc::ConfigError>(())
/// ```
pub struct TokenSourceBuilder {
    settings: TokenRequests,
    refresh_before: Option<Duration>,
}

/// Condition of the token, for a health endpoint or a metric.
///
/// Call [`TokenSource::health`] once a second rather than once a request: it takes a lock and reads the clocks.
///
/// # Examples
///
/// ```
/// use tower_oidc_cc::Health;
///
/// /// A line for a status page.
/// fn line(health: &Health) -> String {
///     let state = if health.is_ready() { "ready" } else { "waiting" };
///     match health.last_success {
///         Some(since) => format!("{state}: token {} came {} s ago", health.generation, since.as_secs()),
///         None => format!("{state}: no token from {} yet", health.endpoint),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// Number of tokens received so far, which is also the number of the newest token.
    pub generation: u64,
    /// Time until the token in use expires; `None` if calls have to wait for a token.
    pub life_left: Option<Duration>,
    /// Time since the last token was received; `None` before the first.
    pub last_success: Option<Duration>,
    /// Last failure of a token request, if no token request has succeeded since.
    ///
    /// As long as [`is_ready`](Self::is_ready) is true, your calls do not fail because of it.
    pub last_error: Option<TokenError>,
    /// Address of the token endpoint, or of the document that names it.
    pub endpoint: String,
}

// === impl TokenSource ===

impl TokenSource {
    /// Creates a builder for tokens of this endpoint, requested with these credentials.
    ///
    /// If they never change, pass [`Credentials`](crate::Credentials), which convert into a provider.
    #[must_use]
    pub fn builder(
        endpoint: TokenEndpoint,
        credentials: impl Into<CredentialsProvider>,
    ) -> TokenSourceBuilder {
        TokenSourceBuilder {
            settings: TokenRequests {
                endpoint,
                provider: credentials.into(),
                secrets: Secrets::default(),
                fields: Vec::new(),
                headers: HeaderMap::from_iter([(header::USER_AGENT, USER_AGENT)]),
                timeout: TIMEOUT,
                clock: Clock::default(),
                store: None,
            },
            refresh_before: None,
        }
    }

    /// Waits until there is a valid token, and requests one if there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; the token request goes on.
    ///
    /// # Errors
    ///
    /// Fails with the error of the token request; during a backoff, with that of the last one: see
    /// [`TokenError::retry_after`].
    pub async fn ready(&self) -> Result<(), TokenError> {
        self.token().await.map(drop)
    }

    /// Returns the token in use, and waits for one if there is none.
    ///
    /// Call this again for each request: the token is valid when you get it, and the source renews it
    /// before its expiry. The source does not see your responses, so report refusals with
    /// [`invalidate`](Self::invalidate).
    ///
    /// If you cannot wait, as in an interceptor, poll the future once, for example with `now_or_never` of
    /// futures-util. Without a valid token, your poll starts a token request, and you get `None` until it
    /// ends; during a backoff you get the last error at once. While a refused token is replaced, you get
    /// `None` for up to a second.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; the token request goes on.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`ready`](Self::ready).
    pub async fn token(&self) -> Result<AccessToken, TokenError> {
        let bearer = Arc::clone(&self.owner).wait().await?;
        Ok(bearer.token.clone())
    }

    /// Reports that the service refused a call because of this token.
    ///
    /// Use it for calls without the layer: it has the effect of a 401 to a call of the layer (see
    /// [Refused tokens](Self#refused-tokens)), unless the token was replaced since or came from another
    /// source. A token that is older than two minutes counts as accepted before.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{HeaderValue, StatusCode};
    /// use tower_oidc_cc::{TokenError, TokenSource};
    ///
    /// /// Calls by an HTTP client without layers.
    /// async fn call(
    ///     tokens: &TokenSource,
    ///     send: impl AsyncFn(&HeaderValue) -> StatusCode,
    /// ) -> Result<StatusCode, TokenError> {
    ///     let token = tokens.token().await?;
    ///     let status = send(token.header()).await;
    ///     if status == StatusCode::UNAUTHORIZED {
    ///         tokens.invalidate(&token);
    ///     }
    ///     Ok(status)
    /// }
    /// ```
    pub fn invalidate(&self, token: &AccessToken) {
        let current = self.owner.bearer();
        if let Some(bearer) = current.filter(|it| it.token.header() == token.header()) {
            let generation = bearer.generation;
            self.owner
                .report(|it, now| it.invalidated(generation, now))
                .ok();
        }
    }

    /// Waits until no token request is in flight, for a program that is about to end.
    ///
    /// Call this before your program ends, after its last request: otherwise a token in flight
    /// may be lost, and the other processes of a [`TokenStore`](crate::TokenStore) may wait for it. Afterwards the token
    /// is in the store.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::timeout;
    /// use tower_oidc_cc::TokenSource;
    ///
    /// async fn shut_down(tokens: TokenSource) {
    ///     // A token request takes ten seconds at most, by default.
    ///     drop(timeout(Duration::from_secs(15), tokens.idle()).await);
    /// }
    /// # let _ = shut_down;
    /// ```
    pub async fn idle(&self) {
        while let Some(flight) = self.owner.in_flight() {
            self.owner.drive();
            self.owner.ended(Some(flight), LOOK_EVERY, None).await;
        }
    }

    /// Returns the secrets of this source, which no text of its errors shows: the credentials of its
    /// provider and its last tokens.
    ///
    /// Share them with layers that put texts of the same service into errors.
    #[must_use]
    pub fn secrets(&self) -> &Secrets {
        &self.owner.grant.settings.secrets
    }

    /// Returns the condition of the token, without waiting or requesting one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_oidc_cc::TokenSource;
    ///
    /// /// Worth an alarm: half an hour is left to mend the endpoint or the credentials.
    /// fn is_worrying(tokens: &TokenSource) -> bool {
    ///     let health = tokens.health();
    ///     let short = health.life_left.is_none_or(|left| left < Duration::from_secs(1_800));
    ///     health.last_error.is_some() && short
    /// }
    /// # let _ = is_worrying;
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        self.owner.with(|state, now| Health {
            generation: state.generation,
            life_left: state
                .in_use_at(now)
                .map(|it| it.lifetime.expires_at.left_at(now)),
            last_success: state.succeeded_at.map(|at| at.age_at(now)),
            last_error: state.last_error().cloned(),
            endpoint: place(self.owner.grant.settings.endpoint.uri()),
        })
    }
}

// === impl Health ===

impl Health {
    /// Whether there is a valid token. If so, new calls wait for a second at most, while a refused
    /// token is replaced.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.life_left.is_some()
    }
}

// === impl TokenSourceBuilder ===

impl TokenSourceBuilder {
    /// Requests these scopes, separated by spaces (RFC 6749, section 3.3); by default for those that the server has set for
    /// the client.
    #[must_use]
    pub fn scope(self, scopes: impl Into<String>) -> Self {
        self.field("scope", scopes)
    }

    /// Adds a field to the form of each token request, such as a `resource` (RFC 8707) or the `audience` that some servers
    /// read; none by default.
    ///
    /// For calls that need other fields, such as another scope, build another source. Leave out the
    /// fields of the grant and the client: they are sent already, and servers refuse a field that occurs
    /// twice.
    #[must_use]
    pub fn field(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.fields.push((name.into(), value.into()));
        self
    }

    /// Adds a header to each request to the authorization server, such as a key of the gateway in front of it; by default,
    /// `User-Agent` names this crate.
    ///
    /// A second value replaces the first. The type of the form and the proof of the client are not replaced.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.settings.headers.insert(name, value);
        self
    }

    /// Bounds one token request, from the wait for the HTTP client to the last byte; 10 s by default.
    ///
    /// Set it longer if your HTTP client limits requests, because its wait for a permit is included. A
    /// caller's deadline ends only that caller's wait, not the request.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Renews a token this long before its expiry; by default after 70 to 80 % of its life, at a random moment.
    ///
    /// Each renewal is earlier by a random part of up to a tenth of the token's age at that time, so that processes that
    /// start together do not renew together. Tokens that live shorter than this are renewed after half of their life, and
    /// after zero the next call requests a token, waits for it, and fails if the endpoint is down at that time.
    ///
    /// For a fixed schedule, subtract: tokens of 24 hours are renewed every 4 hours by `refresh_before` of 20.
    #[must_use]
    pub fn refresh_before(mut self, expiry: Duration) -> Self {
        self.refresh_before = Some(expiry);
        self
    }

    /// Shares the token with other processes that use the same store; none by default.
    ///
    /// Without a token, a process waits for twelve seconds at most while another one requests it. In the process that
    /// requested the token, callers wait until it is saved, for two seconds at most.
    #[must_use]
    pub fn store(mut self, store: impl TokenStore) -> Self {
        self.settings.store = Some(BoxStore::new(store));
        self
    }

    /// Reads the wall clock through `now`, for tests that move it; the system's by default.
    ///
    /// Tokens expire when the first of two clocks reaches their expiry: tokio's, which may stop while a
    /// machine is suspended, or this one, which can be set.
    #[doc(hidden)]
    #[must_use]
    pub fn wall_clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.settings.clock = Clock::with_wall(now);
        self
    }

    /// Builds the source over the HTTP client that carries the token requests.
    ///
    /// Pass any `Service` over `http` types, but none that follows redirects, because your secret would
    /// go to another server, and none that logs bodies, which hold the secret. Nothing is sent yet. For
    /// the first use you need a tokio runtime with its timer enabled.
    #[must_use]
    pub fn build<S, B, R>(self, client: S) -> TokenSource
    where
        S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: From<Bytes> + 'static,
        R: Body + Send + 'static,
        R::Data: Send,
        R::Error: Into<BoxError>,
    {
        let clock = self.settings.clock.clone();
        let state = State::new(self.refresh_before, fastrand::f64);
        let exchange = exchange(client);
        TokenSource {
            owner: Owner::new(state, Grant::new(exchange, self.settings), clock),
        }
    }
}

impl fmt::Debug for TokenSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSourceBuilder")
    }
}

/// Default timeout of a token request. Keycloak 26.5.0 answers in 5 ms; ten seconds leave time for a TLS
/// handshake with a few lost packets, and for a queue at the server.
const TIMEOUT: Duration = Duration::from_secs(10);
