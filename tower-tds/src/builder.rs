//! The builder of a client.

use std::{
    convert,
    env::{self, VarError},
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Uri, header, uri::Scheme};
use hyper::rt::{Read, Write};
use hyper_util::client::{legacy::connect::Connection, proxy::matcher::Intercept};
use tokio::{sync::watch, time::Instant};
use tower::{BoxError, ServiceBuilder};
use tower_oidc_cc::{
    ConfigError, Credentials, CredentialsProvider, Origin, TokenEndpoint, TokenSource,
    TokenSourceBuilder,
};
use tower_service::Service;
use tower_tds_errors::RetryLayer;
use tower_tds_limits::{DeadlineAt, Limiter, Limits, Quota, RequestLimitLayer};

#[cfg(feature = "compression")]
use crate::http::compression;
use crate::{
    client::{
        Client,
        base::Base,
        body::READ_TIMEOUT,
        request::{ReplayBytes, RequestBody},
        sender::{Sender, stack},
    },
    error::BuildError,
    http::{
        http1::{Host, Http, USER_AGENT},
        proxy::Proxies,
        tls::Tls,
        transport::{MakeClients, clients, connector, make_clients},
    },
    stack::{RESPONSE_TIMEOUT, TdsLayer},
};

/// Builds a [`Client`]. [`Client::builder`] takes the required settings.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tower_tds::{Client, Credentials, Limits};
///
/// let credentials = Credentials::new("my-client-id", "s3cr3t")?;
/// let builder = Client::builder("https://auth.example.org", "https://data.example.org", credentials)
///     .limits(Limits::default().lost_after(Duration::from_secs(30)))
///     .deadline(Duration::from_secs(60));
/// # drop(builder);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Builder {
    auth: AuthServer,
    base_url: String,
    credentials: CredentialsProvider,
    /// Applied in `build`, because a token source needs the parsed addresses.
    renewal: Box<dyn FnOnce(TokenSourceBuilder) -> TokenSourceBuilder + Send>,
    limiter: Limiter,
    retry: RetryLayer,
    response_timeout: Duration,
    deadline: Option<Duration>,
    read_timeout: Duration,
    error_bodies: Option<(usize, Duration)>,
    /// Puts the decoder around the http client.
    decode: fn(Http<RequestBody>) -> Http<RequestBody>,
    tls: Tls,
    proxies: Proxies,
    pub(crate) clients: Option<MakeClients<RequestBody>>,
    name: Option<Arc<str>>,
}

/// Where a [`Client`] gets its tokens. Text and [`TokenEndpoint`]s convert into it.
///
/// | you give | token requests go to |
/// |---|---|
/// | a URL as text | `{url}/auth/realms/ServiceConnect/protocol/openid-connect/token` |
/// | [`TokenEndpoint::new`] | the address that you pass |
/// | [`TokenEndpoint::discover`] | the endpoint that the issuer's document names |
///
/// # Examples
/// ```
/// use tower_tds::{Client, Credentials, layers::token::TokenEndpoint};
///
/// let credentials = Credentials::new("my-client-id", "s3cr3t")?;
/// let issuer = TokenEndpoint::discover("https://login.example.org/tenant")?;
/// let client = Client::builder(issuer, "https://data.example.org", credentials);
/// # drop(client);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AuthServer(Result<TokenEndpoint, ConfigError>);

// === impl AuthServer ===

impl From<&str> for AuthServer {
    fn from(auth_url: &str) -> Self {
        Self(TokenEndpoint::keycloak(auth_url, REALM))
    }
}

impl From<&String> for AuthServer {
    fn from(auth_url: &String) -> Self {
        auth_url.as_str().into()
    }
}

impl From<TokenEndpoint> for AuthServer {
    fn from(endpoint: TokenEndpoint) -> Self {
        Self(Ok(endpoint))
    }
}

// === impl Client ===

impl Client {
    /// Creates a builder for the service at `base_url`, with tokens from `auth`.
    ///
    /// `auth` is the URL before `/auth/realms/ServiceConnect`, as text, or any
    /// [`TokenEndpoint`](tower_oidc_cc::TokenEndpoint). `credentials` are fixed
    /// [`Credentials`](tower_oidc_cc::Credentials), or a [`CredentialsProvider`] that reads them again for
    /// each token request. Only the origin of `base_url` gets the token.
    #[must_use]
    pub fn builder(
        auth: impl Into<AuthServer>,
        base_url: &str,
        credentials: impl Into<CredentialsProvider>,
    ) -> Builder {
        Builder {
            auth: auth.into(),
            base_url: base_url.to_owned(),
            credentials: credentials.into(),
            renewal: Box::new(|tokens| tokens),
            limiter: Limits::default().into(),
            retry: RetryLayer::new(),
            response_timeout: RESPONSE_TIMEOUT,
            deadline: None,
            read_timeout: READ_TIMEOUT,
            error_bodies: None,
            decode: convert::identity,
            tls: Tls::default(),
            proxies: Proxies::default(),
            clients: None,
            name: None,
        }
    }
}

// === impl Builder ===

impl Builder {
    /// Reads the required settings from the environment.
    ///
    /// Reads `TDS_AUTH_URL`, `TDS_BASE_URL`, `TDS_CLIENT_ID`, and `TDS_CLIENT_SECRET` or
    /// `TDS_CLIENT_SECRET_FILE`, the path of a file with the secret.
    ///
    /// # Errors
    /// Returns an error that names the variables that are missing, or the one that is not text or not
    /// usable.
    pub fn from_env() -> Result<Self, BuildError> {
        let mut missing = Vec::new();
        let mut required = |name| {
            let value = variable(name)?;
            missing.extend(value.is_none().then_some(name));
            Ok::<_, BuildError>(value.unwrap_or_default())
        };
        let auth_url = required("TDS_AUTH_URL")?;
        let base_url = required("TDS_BASE_URL")?;
        let id = required("TDS_CLIENT_ID")?;
        let (secret, path) = (variable(SECRET)?, variable(SECRET_FILE)?);
        let has_secret = secret.is_some() || path.is_some();
        missing.extend((!has_secret).then_some(EITHER_SECRET));
        if !missing.is_empty() {
            let names = missing.join(", ");
            let text = format!("not set in the environment: {names}");
            return Err(BuildError::new(text));
        }
        let credentials = match (secret, path) {
            (Some(_), Some(_)) => return Err(BuildError::new(TWO_SECRETS)),
            (None, Some(path)) => CredentialsProvider::file(id, path),
            (secret, None) => {
                let credentials = Credentials::new(id, secret.unwrap_or_default());
                credentials
                    .map_err(|error| BuildError::because(UNUSABLE, error))?
                    .into()
            }
        };
        Ok(Client::builder(&auth_url, &base_url, credentials))
    }

    /// Sets the limits: by default 50 requests per second and 60 connections.
    ///
    /// With two or more connections, one is reserved for the token endpoint, so that a token call
    /// waits only for the quotas. The others bound the data calls in flight, so leave
    /// [`Limits::in_flight`] alone unless you want fewer: each further call waits before it is sent.
    /// With a single connection, each call opens a new one and closes it, so that a token call gets
    /// its turn.
    ///
    /// Requests and connections are counted per IP address, for all API keys together. So give all of
    /// your clients behind one address clones of one [`Limiter`]. After a 429 only the client that got
    /// it pauses, because that quota belongs to its key. Each client has a connection pool of its own.
    ///
    /// # Examples
    /// ```
    /// use tower_tds::{Client, Credentials, Limiter, Limits};
    ///
    /// let limiter = Limiter::new(Limits::default());
    /// let client = |id: &str| {
    ///     let credentials = Credentials::new(id, "s3cr3t").expect("it can be sent");
    ///     Client::builder("https://auth.example.org", "https://data.example.org", credentials)
    ///         .limits(limiter.clone())
    /// };
    /// let (bus, metro) = (client("bus"), client("metro"));
    /// # drop((bus, metro));
    /// ```
    #[must_use]
    pub fn limits(mut self, limits: impl Into<Limiter>) -> Self {
        self.limiter = limits.into();
        self
    }

    /// Sets how tokens are fetched and renewed, for example on a schedule, or with a shared store.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tower_tds::{Client, CredentialsProvider};
    ///
    /// // A token of a day is renewed every four hours, and the secret is read again each time.
    /// let key = CredentialsProvider::file("my-client-id", "/run/secrets/tds");
    /// let client = Client::builder("https://auth.example.org", "https://data.example.org", key)
    ///     .tokens(|tokens| tokens.refresh_before(Duration::from_secs(20 * 3_600)));
    /// # drop(client);
    /// ```
    #[must_use]
    pub fn tokens(
        mut self,
        settings: impl FnOnce(TokenSourceBuilder) -> TokenSourceBuilder + Send + 'static,
    ) -> Self {
        self.renewal = Box::new(settings);
        self
    }

    /// Sets a deadline for each call with its body. Give a single call an earlier one with
    /// [`Call::deadline`](crate::Call::deadline).
    ///
    /// If you download large files, set [`RetryLayer::deadline`] instead, which ends at the response head, and
    /// bound the bodies by [`read_timeout`](Self::read_timeout).
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the retry layer: attempts, backoff, budget. [`name`](Self::name) overrides its name.
    #[must_use]
    pub fn retry(mut self, retry: RetryLayer) -> Self {
        self.retry = retry;
        self
    }

    /// Bounds the time from the sending of a request to its response head, for each attempt: 60 s
    /// by default, without the waits for a token, a permit and a connection.
    ///
    /// A call whose token is refused waits for a new one within this time, so set it longer than
    /// your token endpoint takes to respond.
    #[must_use]
    pub const fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Bounds each wait for the next bytes of a body: 30 s by default. What your program does
    /// between two reads does not count.
    ///
    /// # Examples
    /// ```
    /// # fn run(builder: tower_tds::Builder) {
    /// use std::time::Duration;
    /// use tower_tds::layers::errors::RetryLayer;
    ///
    /// // Downloads take as long as they need, unless nothing comes for two minutes.
    /// let builder = builder
    ///     .retry(RetryLayer::new().deadline(Duration::from_secs(30)))
    ///     .read_timeout(Duration::from_secs(120));
    /// # drop(builder);
    /// # }
    /// ```
    #[must_use]
    pub const fn read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = timeout;
        self
    }

    /// Reads the body of an error up to this size and for at most this time, 16 KiB and a second by
    /// default.
    ///
    /// Raise both if your program reads [`Error::body`](crate::Error::body): see
    /// [`ClassifyLayer::error_bodies`](crate::layers::errors::ClassifyLayer::error_bodies).
    #[must_use]
    pub const fn error_bodies(mut self, bytes: usize, time: Duration) -> Self {
        self.error_bodies = Some((bytes, time));
        self
    }

    /// Requests compressed bodies, and decodes them.
    ///
    /// Sends the standard `Accept-Encoding`, and with each GET and HEAD the header that the service
    /// defines for this, `Content-Encoding: br,gzip`. Turn it on for historical data, where it
    /// saves much time. Ranges are requested without compression (RFC 9110, section 14.2). If you
    /// set one of the two headers, you get what it names: br and gzip decoded, any other coding
    /// unchanged. Otherwise a body in another coding or in several ones is an error, and so are bytes
    /// behind its end, zeros too.
    ///
    /// Each body in flight needs memory for its decoder: about 50 kB for gzip. For br it is 4 MB
    /// for a large file, and up to 16 MB (RFC 7932, section 9.1).
    #[cfg(feature = "compression")]
    #[cfg_attr(docsrs, doc(cfg(feature = "compression")))]
    #[must_use]
    pub fn compression(mut self) -> Self {
        self.decode = compression::around;
        self
    }

    /// Sets the name of this client: the field `tds.client` of its spans, and the label `client` of
    /// its metrics.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds trusted root certificates in PEM, for example of a company's own CA.
    ///
    /// From a bundle, blocks that are not usable are skipped with a warning in the log.
    ///
    /// # Examples
    /// ```no_run
    /// # fn run(builder: tower_tds::Builder) -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = builder
    ///     .root_certificate(&std::fs::read("/etc/ssl/company.pem")?)
    ///     .proxy("http://proxy.example.org:3128");
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn root_certificate(mut self, pem: &[u8]) -> Self {
        self.tls.roots.push(pem.to_vec());
        self
    }

    /// Sets the whole TLS configuration, for example with a client certificate or another verifier.
    ///
    /// The feature is named after the release of rustls that defines this type, so that a method
    /// for a later release can be added.
    #[cfg(feature = "rustls-0-23")]
    #[cfg_attr(docsrs, doc(cfg(feature = "rustls-0-23")))]
    #[must_use]
    pub fn tls(mut self, config: rustls::ClientConfig) -> Self {
        self.tls.whole = Some(config);
        self
    }

    /// Connects to all https addresses through a tunnel of this proxy.
    ///
    /// Write the URL as `http://host:port`, or `http://user:password@host:port` if the proxy
    /// requires credentials. Connections to it count toward the connection limit.
    #[must_use]
    pub fn proxy(mut self, url: &str) -> Self {
        self.proxies = Proxies::one(url);
        self
    }

    /// Connects to https addresses through the proxy in `HTTPS_PROXY` or `ALL_PROXY`, except for
    /// the hosts in `NO_PROXY` and for this machine.
    ///
    /// hyper-util's matcher reads these variables as curl does. By default the client ignores them.
    /// If a proxy is not usable, [`build`](Self::build) fails.
    #[must_use]
    pub fn env_proxies(mut self) -> Self {
        self.proxies = Proxies::from_env();
        self
    }

    /// Sets the connector: for a Unix socket, another TLS library, a tunnel, or a pipe in a test.
    ///
    /// The client calls the connector with an address of the service or of the token endpoint. TLS
    /// and proxies are up to the connector, so `build` rejects settings for them. Open one socket in
    /// each call, within 20 s, because the connection limit counts calls of the connector. Its
    /// `poll_ready` has no timeout.
    ///
    /// Its connections must speak HTTP/1.1: one that has negotiated h2 is an error. The client sends
    /// only the path of a URI even if the connection is marked as
    /// [proxied](hyper_util::client::legacy::connect::Connected::proxy), and extensions of a
    /// connection, such as `HttpInfo`, are not passed on to its responses.
    ///
    /// On TCP set `TCP_USER_TIMEOUT` to [`Limits::lost_after`] at most, as the client's own
    /// connector does. Otherwise the kernel resends abandoned requests once the network is back,
    /// and you exceed the quota.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(unix)]
    /// # fn run(builder: tower_tds::Builder) -> Result<(), tower_tds::BuildError> {
    /// use hyper_util::rt::TokioIo;
    /// use tokio::net::UnixStream;
    ///
    /// let sidecar = tower::service_fn(async |_service: http::Uri| {
    ///     Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect("/run/sidecar.sock").await?))
    /// });
    /// let client = builder.connector(sidecar).build()?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn connector<C>(mut self, connector: C) -> Self
    where
        C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
        C::Response: Read + Write + Connection + Send + Unpin + 'static,
    {
        self.clients = Some(make_clients(connector));
        self
    }

    /// Builds the client. Nothing is sent, and no runtime is needed.
    ///
    /// # Errors
    /// Returns an error if an address is neither https nor http on this machine, if a certificate or
    /// a proxy is not usable, if there are no root certificates, or if two settings exclude each
    /// other.
    pub fn build(self) -> Result<Client, BuildError> {
        let unusable = |error: BoxError| BuildError::because("the base URL is not usable", error);
        let base_url = self.base_url.parse::<Uri>().map_err(|error| {
            BuildError::because("the base URL is not usable: give https://host", error)
        })?;
        let origin = Origin::from_uri(&base_url).map_err(|error| unusable(error.into()))?;
        let host = Host::of(&base_url).map_err(unusable)?;
        if self.base_url.contains('#') {
            return Err(BuildError::new(
                "the base URL has a fragment, which is not sent",
            ));
        }
        let base = Base::new(origin, base_url.clone())?;
        let unusable = |error| BuildError::because("the authentication URL is not usable", error);
        let endpoint = self.auth.0.map_err(unusable)?;

        let mut passwords = Vec::new();
        let data = &self.limiter;
        let clients = match self.clients {
            Some(make) if self.tls.is_untouched() && self.proxies.is_none() => make(data, host),
            Some(_) => {
                return Err(BuildError::new(
                    "Builder::connector excludes settings of TLS and proxies: make them in the connector",
                ));
            }
            None => {
                let targets = [endpoint.uri(), &base_url];
                let is_secure = |uri: &&Uri| uri.scheme() != Some(&Scheme::HTTP);
                let tls = self.tls.config(targets.iter().any(is_secure))?;
                let unusable = |error| BuildError::because("the proxy is not usable", error);
                let of = |target| self.proxies.of(target).map_err(unusable);
                let proxies = [of(targets[0])?, of(targets[1])?];
                let named = proxies.iter().flatten();
                passwords.extend(named.filter_map(Intercept::basic_auth).cloned());
                let are_direct = proxies.each_ref().map(Option::is_none);
                clients(data, host, are_direct, |limiter| {
                    connector(limiter, tls.clone(), self.proxies.clone())
                })
            }
        };
        // One gateway may count data and token requests together. Token requests are first in the
        // queue, because a waiting call may need the token.
        let limit = RequestLimitLayer::new(data.first_in_line()).response_timeout(TOKEN_RESPONSE);
        let longest = longest_turn(data.limits()).saturating_add(TOKEN_RESPONSE);
        let token_http = ServiceBuilder::new()
            .map_request(move |mut request: Request<_>| {
                // With its hand-over, a request that its source has given up is not sent later.
                let ends = Instant::now() + longest;
                DeadlineAt::bound(request.extensions_mut(), ends.into_std());
                request
            })
            .layer(limit)
            .service(clients.tokens);
        let tokens = TokenSource::builder(endpoint, self.credentials)
            .header(header::USER_AGENT, USER_AGENT)
            .timeout(longest);
        let tokens = (self.renewal)(tokens).build(token_http);
        for password in &passwords {
            tokens.secrets().add("password of the proxy", password);
        }
        let mut retry = self.retry;
        if let Some(name) = &self.name {
            retry = retry.name(Arc::clone(name));
        }
        let mut layer = TdsLayer::new(tokens.clone(), [base.origin.clone()], data.clone())
            .retry(retry.replay(ReplayBytes));
        layer.limit = layer.limit.response_timeout(self.response_timeout);
        if let Some((bytes, time)) = self.error_bodies {
            layer.classify = layer.classify.error_bodies(bytes, time);
        }
        Ok(Client::new(Sender {
            stack: stack(&layer, (self.decode)(clients.data)),
            pool: clients.pool,
            name: self.name,
            base,
            deadline: self.deadline,
            read_timeout: self.read_timeout,
            is_closed: watch::Sender::new(false),
            failure: Mutex::default(),
            tokens,
            // With the pause of this layer's services.
            limiter: layer.limit.limiter().clone(),
        }))
    }
}

/// Shows only the host of the base URL, because the URL may contain a password.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = self.base_url.parse::<Uri>().unwrap_or_default();
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("host", &base.host())
            .finish_non_exhaustive()
    }
}

/// Returns the longest wait of a token call for its permit. The call is first in the queue, so it
/// waits only for permits that are already live: for one interval, or two with some rules, after
/// the slowest response.
fn longest_turn(limits: &Limits) -> Duration {
    let intervals = limits.quotas().iter().map(Quota::per);
    let longest = intervals.max().unwrap_or_default();
    longest.saturating_mul(2).saturating_add(SLOW_ANSWER)
}

/// Reads an environment variable. If it is empty, it counts as not set.
fn variable(name: &'static str) -> Result<Option<String>, BuildError> {
    match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        // The source is left out, because its text contains the value, which may be the secret.
        Err(VarError::NotUnicode(_)) => Err(BuildError::new(format!("{name} is not text"))),
    }
}

/// Default of `Limits::lost_after`, the time for which a lost request counts.
const SLOW_ANSWER: Duration = Duration::from_secs(10);

const SECRET: &str = "TDS_CLIENT_SECRET";

const SECRET_FILE: &str = "TDS_CLIENT_SECRET_FILE";

const UNUSABLE: &str = "TDS_CLIENT_ID or TDS_CLIENT_SECRET is not usable";

const TWO_SECRETS: &str =
    "TDS_CLIENT_SECRET and TDS_CLIENT_SECRET_FILE are both set: unset one of them";

const EITHER_SECRET: &str = "TDS_CLIENT_SECRET (or TDS_CLIENT_SECRET_FILE)";

/// Much longer than a token endpoint needs (milliseconds), and much shorter than the default
/// deadline of a call.
const TOKEN_RESPONSE: Duration = Duration::from_secs(10);

/// Realm in the path of the token endpoint, as the service documents it.
const REALM: &str = "ServiceConnect";
