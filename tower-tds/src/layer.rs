//! The whole stack as one layer, for any client.

use std::{borrow::Cow, sync::Arc};

use tower::{Layer, ServiceBuilder};
use tower_oidc_cc::{BearerAuth, BearerAuthLayer, Origin, TokenSource};
use tower_tds_errors::{
    Classify, ClassifyLayer, CloneBody, Deadline, DeadlineAt, Error, Guard, GuardLayer, Retry,
    RetryLayer,
};
use tower_tds_limits::{Detach, DetachLayer, Limiter, RequestLimit, RequestLimitLayer, Track};

use crate::{
    Traced,
    status::Waits,
    trace::{Name, Of, waited_for_token},
    translate::{ReadError, into_error},
};

/// Puts retry, token, limits and classification around any client, in the order that is right.
///
/// ```text
/// request -> Traced -> Retry -> Traced -> BearerAuth -> Detach -> RequestLimit -> Guard -> Classify -> your client
/// ```
///
/// The client is any clonable `Service` of `http::Request` with a response body: hyper-util's, tonic's channel, a
/// stack of one's own. Its sockets are its own: put a
/// [`ConnectionLimitLayer`](tower_tds_limits::ConnectionLimitLayer) of the same limiter under its TLS.
/// Its future has to be `Unpin`, as hyper's is, because a call that nobody waits for any more is moved to a task:
/// otherwise put `.map_future(Box::pin)` between the two.
///
/// Nothing is sent after a deadline, and a cancelled call that was sent runs to its end, as far as the client shows
/// whether the request was sent. hyper-util's client for HTTP/1 does, through the connection limit. Over a client that
/// connects in a task of its own, such as reqwest, tonic's channel or any HTTP/2 client, a request whose connection comes
/// late may be sent up to ten seconds after its deadline: give such a client a connect timeout.
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
///         limits::{Background, ConnectionLimitLayer, RequestLimitLayer},
///         token::{Origin, TokenEndpoint, TokenSource},
///     },
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(Limits::default());
/// let connector = ConnectionLimitLayer::new(limiter.clone()).layer(HttpConnector::new()); // TLS goes above
/// let http = Client::builder(Background::new(TokioExecutor::new())).build(connector);
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
    name: Name,
}

/// What [`TdsLayer`] makes of a client.
pub type TdsService<S, P = CloneBody> = Above<Guard<Classify<Track<S>>>, P>;

/// What stands above something that classifies.
pub(crate) type Above<S, P> = Traced<Retry<Traced<Tokened<S>, Untranslated>, P>>;
type Tokened<S> = BearerAuth<Detach<RequestLimit<S, ReadError>>, ReadError>;
type Untranslated = tower_oidc_cc::Error<tower_tds_limits::Error<Error>>;

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
                .deadline_from(|extensions| Some(extensions.get::<DeadlineAt>()?.0)),
            tokens,
            limiter,
            guard: GuardLayer::new(),
            classify: ClassifyLayer::new(),
            name: None,
        }
    }
}

impl<P> TdsLayer<P> {
    /// Retries otherwise than by default. What a call waited for is named by this layer.
    #[must_use]
    pub fn retry<Q>(self, retry: RetryLayer<Q>) -> TdsLayer<Q> {
        TdsLayer {
            retry,
            tokens: self.tokens,
            bearer: self.bearer,
            limiter: self.limiter,
            guard: self.guard,
            classify: self.classify,
            name: self.name,
        }
    }

    /// Ends calls by an error when this time is over, unless they bring an earlier deadline.
    #[must_use]
    pub fn deadline(mut self, deadline: impl Into<Deadline>) -> Self {
        self.retry = self.retry.deadline(deadline);
        self
    }

    /// Watches the bodies of successes otherwise than by default.
    #[must_use]
    pub fn guard(mut self, guard: GuardLayer) -> Self {
        self.guard = guard;
        self
    }

    /// Reads answers otherwise than by default.
    #[must_use]
    pub fn classify(mut self, classify: ClassifyLayer) -> Self {
        self.classify = classify;
        self
    }

    /// Tells its calls from those of others in the process: see [`Builder::name`](crate::Builder::name).
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The same, where there may be none.
    pub(crate) fn named(self, name: Name) -> Self {
        Self { name, ..self }
    }

    /// The part of it that stands above something that classifies.
    pub(crate) fn above<S: Clone>(self, classified: S) -> Above<S, P>
    where
        P: Clone,
    {
        let (tokens, limiter) = (self.tokens, self.limiter.clone());
        let name = || self.name.clone();
        let of_wait = name();
        let bearer = self.bearer;
        let bearer = bearer.on_wait(move |waited| waited_for_token(&of_wait, waited));
        ServiceBuilder::new()
            .layer_fn(|calls| Traced::new(calls, Of::Calls, name(), |error| error))
            .layer(self.retry.waits_for(move || waiting(&tokens, &limiter)))
            .layer_fn(|attempts| Traced::new(attempts, Of::Attempts, name(), into_error))
            .layer(bearer)
            .layer(DetachLayer)
            .layer(RequestLimitLayer::new(self.limiter).feedback(ReadError))
            .service(classified)
    }
}

impl<S: Clone, P: Clone> Layer<S> for TdsLayer<P> {
    type Service = TdsService<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        let read = self.guard.layer(self.classify.layer(Track::new(inner)));
        self.clone().above(read)
    }
}

/// What a call waits for that is not let through, for the error by its deadline.
fn waiting(tokens: &TokenSource, limiter: &Limiter) -> Cow<'static, str> {
    let in_flight = limiter.limits().in_flight.get();
    let token = tokens.health();
    let waits = Waits::of(&token, &limiter.snapshot(), in_flight);
    if waits != Waits::Token {
        return Cow::Owned(waits.to_string());
    }
    // A token endpoint that hangs has no error yet, so its address is named here.
    let failed = token.last_error().map(|error| format!(": {error}"));
    let failed = failed.unwrap_or_default();
    Cow::Owned(format!("a token from {}{failed}", token.endpoint()))
}
