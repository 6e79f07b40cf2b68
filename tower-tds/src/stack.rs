//! The whole stack as one layer, for any client.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, header::HOST};
use pin_project_lite::pin_project;
use tower::{BoxError, Layer, ServiceBuilder};
use tower_oidc_cc::{BearerAuth, BearerAuthLayer, Origin, TokenSource};
use tower_service::Service;
use tower_tds_errors::{Classify, ClassifyLayer, CloneBody, Error, Retry, RetryLayer};
use tower_tds_limits::{Limiter, RequestLimit, RequestLimitLayer, WaitCause};
use tower_tds_outcome::Cause;

/// Puts retry, limits, token and classification around any HTTP client, in the right order.
///
/// ```text
/// request -> Retry -> RequestLimit -> BearerAuth -> Classify -> your client
/// ```
///
/// Use it over any `Service` of `http::Request` that is `Clone`, for example hyper-util's client,
/// tonic's channel or a stack of your own. Its sockets are yours to limit: put a
/// [`ConnectionLimitLayer`](tower_tds_limits::ConnectionLimitLayer) of the same limiter under its
/// TLS.
///
/// If you give exactly one origin, a request may have only a path, as those of kube do, and goes to that origin.
///
/// A deadline covers the call until its response head, but not the body, and nothing is sent after it. Under overload, a
/// call that cannot be answered in time is rejected at its turn. Each attempt has a minute from its sending to its response
/// head.
///
/// If you drop a call that has its permit, it counts as sent, so it is completed in the background for up to ten
/// seconds. Its request may still be written then, unless your client marks its requests
/// ([`HandOver`](tower_tds_outcome::HandOver)). A request whose connection the server resets counts for ten seconds,
/// unless your client marks that as well.
///
/// The service counts token requests as well, so build the [`TokenSource`] over a client with a `RequestLimitLayer` of
/// [`Limiter::first_in_line`].
///
/// # Backpressure
/// Like [`Retry`], the service is always ready: a call waits for token and permits in its future,
/// within its deadline.
///
/// # Errors
/// Returns an [`Error`](crate::Error), as [`Client`](crate::Client) does.
///
/// # Examples
/// ```
/// use http_body_util::Full;
/// use hyper_util::{client::legacy::{Client, connect::HttpConnector}, rt::TokioExecutor};
/// use tower::{Layer, ServiceBuilder, util::MapErr};
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
/// let mut tcp = HttpConnector::new();
/// // Otherwise the kernel resends abandoned requests once the network is back.
/// #[cfg(target_os = "linux")]
/// tcp.set_tcp_user_timeout(Some(limiter.limits().tcp_user_timeout()));
/// let connector = ConnectionLimitLayer::new(limiter.clone()).layer(tcp); // TLS goes above
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
    origins: Arc<[Origin]>,
    pub(crate) limit: RequestLimitLayer,
    pub(crate) classify: ClassifyLayer,
}

/// Sends a request with only a path to the origin of its layer, if there is exactly one, and names the token endpoint
/// and its last failure if a call ends while it waits for a token.
#[derive(Debug, Clone)]
pub struct Named<S> {
    inner: S,
    tokens: TokenSource,
    /// Where there is exactly one, requests that have only a path go to it.
    origins: Arc<[Origin]>,
}

pin_project! {
    /// Future of a [`Named`].
    #[derive(Debug)]
    pub struct NamedFuture<F> {
        #[pin]
        inner: F,
        tokens: TokenSource,
    }
}

// === impl TdsLayer ===

impl TdsLayer {
    /// Creates the layer. It sends tokens of `tokens` to these origins only, within the limits of
    /// `limiter`.
    #[must_use]
    pub fn new(
        tokens: TokenSource,
        origins: impl IntoIterator<Item = Origin>,
        limiter: Limiter,
    ) -> Self {
        let classify = ClassifyLayer::new().secrets(tokens.secrets().clone());
        Self {
            retry: RetryLayer::new(),
            tokens,
            origins: origins.into_iter().collect(),
            limit: RequestLimitLayer::new(limiter).response_timeout(RESPONSE_TIMEOUT),
            classify,
        }
    }

    /// Sets the retry layer, which also holds the deadline of the calls.
    #[must_use]
    pub fn retry<Q>(self, retry: RetryLayer<Q>) -> TdsLayer<Q> {
        TdsLayer {
            retry,
            tokens: self.tokens,
            origins: self.origins,
            limit: self.limit,
            classify: self.classify,
        }
    }
}

impl<S: Clone, P: Clone> Layer<S> for TdsLayer<P> {
    type Service = Retry<Named<RequestLimit<BearerAuth<Classify<S>>>>, P>;

    fn layer(&self, client: S) -> Self::Service {
        let bearer = BearerAuthLayer::new(self.tokens.clone(), self.origins.iter().cloned());
        ServiceBuilder::new()
            .layer(self.retry.clone().deadline_kept_below())
            .layer_fn(|inner| Named {
                inner,
                tokens: self.tokens.clone(),
                origins: Arc::clone(&self.origins),
            })
            .layer(self.limit.clone())
            .layer(bearer)
            .layer(self.classify.clone().below_retry())
            .service(client)
    }
}

// === impl Named ===

impl<S, B> Service<Request<B>> for Named<S>
where
    S: Service<Request<B>, Error = tower_tds_limits::Error>,
{
    type Response = S::Response;
    type Error = Error;
    type Future = NamedFuture<S::Future>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let ready = self.inner.poll_ready(cx);
        ready.map_err(|error| BoxError::from(error).into())
    }

    #[inline]
    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if request.uri().authority().is_none()
            && let [origin] = &*self.origins
        {
            *request.uri_mut() = origin.absolute(request.uri());
            // A bare connection does not add this header, which each request needs (RFC 9112,
            // section 3.2).
            let host = request.uri().authority().map(|it| it.as_str().parse());
            if let Some(Ok(host)) = host {
                request.headers_mut().entry(HOST).or_insert(host);
            }
        }
        NamedFuture {
            inner: self.inner.call(request),
            tokens: self.tokens.clone(),
        }
    }
}

impl<F, R> Future for NamedFuture<F>
where
    F: Future<Output = Result<R, tower_tds_limits::Error>>,
{
    type Output = Result<R, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polled = this.inner.poll(cx);
        polled.map_err(|error| named(error, this.tokens))
    }
}

#[cold]
fn named(error: tower_tds_limits::Error, tokens: &TokenSource) -> Error {
    let known = Cause::of(&error).filter(|_| error.cause() == Some(WaitCause::Readiness));
    let Some(mut cause) = known.cloned() else {
        return Error::from(BoxError::from(error));
    };
    let health = tokens.health();
    let wait = match &health.last_error {
        // It names the endpoint.
        Some(failed) => format!("a token: {failed}"),
        None => format!("a token from {}", health.endpoint),
    };
    cause.waited_for = Some(wait.into());
    Error::from(cause.over(error))
}

/// Time that gateways wait for a response head by default (nginx, `proxy_read_timeout`; Kong,
/// `read_timeout`). After it the gateway has given up.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
