//! The whole stack as one layer, for any client.

use std::{sync::Arc, time::Duration};

use tower::{Layer, ServiceBuilder};
use tower_oidc_cc::{BearerAuth, BearerAuthLayer, Origin, TokenSource};
use tower_tds_errors::{
    Classify, ClassifyLayer, CloneBody, Deadline, DeadlineAt, Error, Guard, GuardLayer, Retry,
    RetryLayer,
};
use tower_tds_limits::{Detached, Limiter, RequestLimit, RequestLimitLayer, WaitCause};

use crate::{
    Traced,
    trace::{Name, Of, Read},
    translate::{ReadError, into_error},
};

/// Puts retry, token, limits and classification around any client, in the order that is right.
///
/// ```text
/// request -> Traced -> Retry -> Traced -> RequestLimit -> BearerAuth -> Guard -> Classify -> your client
/// ```
///
/// The client is any clonable `Service` of `http::Request` with a response body: hyper-util's,
/// tonic's channel, a custom stack. It opens its own sockets: put a
/// [`ConnectionLimitLayer`](tower_tds_limits::ConnectionLimitLayer) of the same limiter under its
/// TLS. Its future has to be `Unpin`, as hyper's is, because a cancelled call is moved to a task:
/// otherwise put `.map_future(Box::pin)` between the two.
///
/// Nothing is sent after a deadline. A cancelled call that was sent runs to its end in the background. A
/// guard in the request's extensions shows whether it was sent; over HTTP/2, and over clients that
/// convert requests, such as reqwest, a cancelled call counts as sent.
///
/// Token requests count at the service as well: build the [`TokenSource`] over a client behind
/// [`Limiter::first_in_line`].
///
/// # Backpressure
/// As of [`Retry`]: it is always ready, and a call waits for token and permits in its future, within its
/// deadline.
///
/// # Errors
/// [`Error`], as of [`Client`](crate::Client).
///
/// # Examples
/// ```
/// use http_body_util::Full;
/// use hyper_util::{client::legacy::{Client, connect::HttpConnector}, rt::TokioExecutor};
/// use tower::{Layer, ServiceBuilder};
/// use tower_tds::{
///     Credentials, Limiter, Limits, TdsLayer,
///     layers::{
///         limits::{ConnectionLimitLayer, RequestLimitLayer},
///         token::{Origin, TokenEndpoint, TokenSource},
///     },
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(Limits::default());
/// let connector = ConnectionLimitLayer::new(limiter.clone()).layer(HttpConnector::new()); // TLS goes above
/// let http = Client::builder(TokioExecutor::new()).build(connector);
///
/// let endpoint = TokenEndpoint::keycloak("https://auth.example.org", "ServiceConnect")?;
/// let counted = RequestLimitLayer::new(limiter.first_in_line()).layer(http.clone());
/// let tokens = TokenSource::builder(endpoint, Credentials::new("my-client-id", "s3cr3t")?).build(counted);
///
/// let origin = Origin::from_uri(&"https://data.example.org".parse()?)?;
/// let service = ServiceBuilder::new().layer(TdsLayer::new(tokens, [origin], limiter)).service(http);
/// # fn is_service<S: tower::Service<http::Request<Full<bytes::Bytes>>>>(_: S) {}
/// # is_service(service);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct TdsLayer<P = CloneBody> {
    retry: RetryLayer<P>,
    tokens: TokenSource,
    bearer: BearerAuthLayer<ReadError>,
    limiter: Limiter,
    guard: GuardLayer,
    classify: ClassifyLayer,
    answer_timeout: Duration,
    name: Name,
}

/// The service of a [`TdsLayer`] around a client.
pub type TdsService<S, P = CloneBody> = Above<Guard<Classify<S>>, P>;

/// The layers above a classifying service.
pub(crate) type Above<S, P> = Traced<Retry<Traced<Limited<S>, Untranslated>, P>>;
type Limited<S> = RequestLimit<BearerAuth<S, ReadError>, ReadError, Detached>;
type Untranslated = tower_tds_limits::Error<tower_oidc_cc::Error<Error>>;

// === impl TdsLayer ===

impl TdsLayer {
    /// Sends tokens of `tokens` to these origins, within the limits of `limiter`.
    #[must_use]
    pub fn new(
        tokens: TokenSource,
        origins: impl IntoIterator<Item = Origin>,
        limiter: Limiter,
    ) -> Self {
        Self {
            retry: RetryLayer::new(),
            bearer: BearerAuthLayer::new(tokens.clone(), origins)
                .judge(ReadError)
                .deadline_from(DeadlineAt::of),
            tokens,
            limiter,
            guard: GuardLayer::new(),
            classify: ClassifyLayer::new(),
            answer_timeout: ANSWER_TIMEOUT,
            name: None,
        }
    }
}

impl<P> TdsLayer<P> {
    /// Sets the retry layer. The causes of waits are set by this layer.
    #[must_use]
    pub fn retry<Q>(self, retry: RetryLayer<Q>) -> TdsLayer<Q> {
        TdsLayer {
            retry,
            tokens: self.tokens,
            bearer: self.bearer,
            limiter: self.limiter,
            guard: self.guard,
            classify: self.classify,
            answer_timeout: self.answer_timeout,
            name: self.name,
        }
    }

    /// Sets the latest deadline of all calls.
    #[must_use]
    pub fn deadline(mut self, deadline: impl Into<Deadline>) -> Self {
        self.retry = self.retry.deadline(deadline);
        self
    }

    /// Bounds the time from the sending of a request to its response head, for each attempt. The
    /// default is 60 s.
    ///
    /// The waits for a token, a permit and a connection do not count.
    ///
    /// The time for which a refused call is held for another token counts: allow the token endpoint's
    /// answer time at least.
    #[must_use]
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = timeout;
        self
    }

    /// Sets the guard of bodies.
    #[must_use]
    pub fn guard(mut self, guard: GuardLayer) -> Self {
        self.guard = guard;
        self
    }

    /// Sets the classification of responses.
    #[must_use]
    pub fn classify(mut self, classify: ClassifyLayer) -> Self {
        self.classify = classify;
        self
    }

    /// Names its calls in spans and metrics: see [`Builder::name`](crate::Builder::name).
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the name, if there is one.
    pub(crate) fn named(self, name: Name) -> Self {
        Self { name, ..self }
    }

    /// Puts the layers above a classifying service.
    pub(crate) fn above<S: Clone>(self, classified: S) -> Above<S, P>
    where
        P: Clone,
    {
        let (name, tokens) = (|| self.name.clone(), self.tokens.clone());
        let read: Read<Untranslated> = Arc::new(move |error| read(error, &tokens));
        ServiceBuilder::new()
            .layer_fn(|calls| Traced::new(calls, Of::Calls, name(), Arc::new(|error| error)))
            .layer(self.retry)
            .layer_fn(|attempts| Traced::new(attempts, Of::Attempts, name(), Arc::clone(&read)))
            .layer(
                RequestLimitLayer::new(self.limiter)
                    .feedback(ReadError)
                    .deadline_from(DeadlineAt::of)
                    .answer_timeout(self.answer_timeout)
                    .detached(),
            )
            .layer(self.bearer)
            .service(classified)
    }
}

impl<S: Clone, P: Clone> Layer<S> for TdsLayer<P> {
    type Service = TdsService<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        let read = self.guard.layer(self.classify.layer(inner));
        self.clone().above(read)
    }
}

/// Converts the errors of the layers. A wait for a token names the endpoint and its last error.
fn read(error: Untranslated, tokens: &TokenSource) -> Error {
    let waited_for_token = matches!(
        &error,
        Untranslated::Limit(limit) if limit.cause() == WaitCause::Readiness
    );
    let error = into_error(error);
    if !waited_for_token {
        return error;
    }
    let health = tokens.health();
    let failed = health.last_error.as_ref().map(|error| format!(": {error}"));
    let failed = failed.unwrap_or_default();
    error.with_waited_for(format!("a token from {}{failed}", health.endpoint))
}

/// The time that proxies wait for a head by default (nginx, `proxy_read_timeout`; Kong, `read_timeout`).
/// After it a gateway has given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
