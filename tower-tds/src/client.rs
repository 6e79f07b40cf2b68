//! The assembled client.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{
    HeaderValue, Request, Response, Version,
    header::{HOST, USER_AGENT},
};
use tokio::time::timeout;
use tower_oidc_cc::{Origin, Provider, TokenSource};
use tower_service::Service;
use tower_tds_errors::{Classify, Error, Kind};
use tower_tds_limits::Limiter;

use crate::{
    BuildError, Builder, Call, RequestBody, ResponseBody, Status, TdsLayer,
    base::Base,
    calls::{Calls, UnderWay},
    compression::Decoded,
    layer::Above,
    request::ReplayBytes,
    trace::Name,
};

/// A client of the service with a valid token, within the limits, with typed errors.
///
/// # Backpressure
/// `poll_ready` is always ready: the future of a call waits for its token and its permits, within
/// its deadline. To refuse calls instead, put a limit of your own in front.
///
/// # Cancel safety
/// A dropped call that was sent is completed in the background, because the service may count it,
/// and its connection stays open. A token request that other calls wait for goes on.
///
/// # Clone
/// Clones share the token, the limits and the sockets. Use a clone for one request (`oneshot`).
///
/// # Runtimes
/// A connection belongs to the runtime of the call that opened it. If that runtime has ended, a
/// call on the connection is retried. If that runtime is not driven, as a current-thread runtime
/// outside of `block_on`, a call of another runtime may get the connection and wait until its
/// attempt ends. Give such runtimes a client each, with the same
/// [`SharedLimits`](crate::SharedLimits).
///
/// # Errors
/// [`Error::kind`] is what happened, and the text contains what to do next. A success that ends
/// early gives an error from its [body](ResponseBody).
///
/// # Examples
/// See the [crate's front page](crate).
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

/// The state that clones share.
pub(crate) struct Shared {
    /// Called by reference: a call clones the service below the retry.
    pub(crate) stack: Stack,
    pub(crate) name: Name,
    pub(crate) base: Base,
    pub(crate) user_agent: HeaderValue,
    pub(crate) calls: Arc<Calls>,
    pub(crate) tokens: TokenSource,
    pub(crate) origin: Origin,
    pub(crate) limiter: Limiter,
}

pub(crate) type Stack = Above<Classify<Decoded>, ReplayBytes>;

// === impl Client ===

impl Client {
    /// Creates a builder for the service at `base_url`, with tokens from the realm at `auth_url`.
    ///
    /// The token endpoint is `{auth_url}/auth/realms/ServiceConnect/protocol/openid-connect/token`
    /// (contract, "Token endpoint"). Credentials are fixed [`Credentials`](crate::Credentials), or a
    /// [`Provider`] that reads them anew for each token. The token goes to the origin of `base_url` and nowhere else.
    #[must_use]
    pub fn builder(auth_url: &str, base_url: &str, credentials: impl Into<Provider>) -> Builder {
        Builder::new(auth_url, base_url, credentials.into())
    }

    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Builds a client from the environment: see [`Builder::from_env`].
    ///
    /// # Errors
    /// As of [`Builder::from_env`] and [`Builder::build`].
    pub fn from_env() -> Result<Self, BuildError> {
        Builder::from_env()?.build()
    }

    /// Closes all clones, and waits for calls and token requests in flight. Returns whether all
    /// have ended in time.
    ///
    /// Cancelled calls that run in the background count as well.
    ///
    /// A response is in flight until its body has been read or dropped. If several clients share
    /// [limits](crate::SharedLimits), it waits for the background calls of all of them.
    ///
    /// # Cancel safety
    /// Dropping it leaves the client closed.
    pub async fn shutdown(&self, within: Duration) -> bool {
        self.shared.calls.close();
        let ended = async {
            // A call in a backoff or in the queue is not in flight for the limiter.
            self.shared.calls.ended().await;
            self.shared.limiter.idle().await;
            // The save of a token may also be in progress.
            self.shared.tokens.idle().await;
        };
        timeout(within, ended).await.is_ok()
    }

    /// Sends a GET to `target`: a path, which is appended to the base URL byte for byte, or an
    /// absolute URI of the service.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn run(client: tower_tds::Client) -> Result<(), tower_tds::Error> {
    /// let bus = client.get("/v1/live/bus?$filter=line%20eq%20'307'").await?;
    /// println!("{}", bus.text().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, target: &str) -> Call {
        let request = Base::parse(target).map(|uri| {
            let mut request = Request::new(RequestBody::default());
            *request.uri_mut() = uri;
            request
        });
        Call::new(self.clone(), request)
    }

    /// Sends any request. Its URI is a path, which is appended to the base URL, or an absolute URI
    /// of the service.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn run(client: tower_tds::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let search = http::Request::post("/v1/search").body(r#"{"line":307}"#)?;
    /// let found = client.request(search).await?;
    /// # drop(found);
    /// # Ok(())
    /// # }
    /// ```
    pub fn request<B: Into<RequestBody>>(&self, request: Request<B>) -> Call {
        Call::new(self.clone(), Ok(request.map(Into::into)))
    }

    fn begin(
        &self,
        request: Request<RequestBody>,
    ) -> Result<(Request<RequestBody>, UnderWay), Error> {
        let request = self.whole(request)?;
        let Some(under_way) = Calls::begin(&self.shared.calls) else {
            let closed = Error::new(Kind::InvalidRequest, "the client was shut down");
            let closed = closed.with_request(request.method().clone(), request.uri());
            return Err(closed.with_advice(SHUT_DOWN));
        };
        Ok((request, under_way))
    }

    /// Completes a request: its URI, its version and its default headers.
    fn whole(&self, mut request: Request<RequestBody>) -> Result<Request<RequestBody>, Error> {
        let target = mem::take(request.uri_mut());
        let is_path = target.scheme().is_none();
        *request.uri_mut() = self.shared.base.resolve(target)?;
        // A proxy's request may have another version.
        *request.version_mut() = Version::default();
        let headers = request.headers_mut();
        headers
            .entry(USER_AGENT)
            .or_insert_with(|| self.shared.user_agent.clone());
        // hyper would format the same value for each request, which takes a twentieth of a call.
        if is_path {
            let host = || self.shared.base.host().clone();
            headers.entry(HOST).or_insert_with(host);
        }
        Ok(request)
    }

    /// Returns a [`TdsLayer`] with this client's token and limits, for another HTTP client.
    ///
    /// The sockets of that client count within the same limit if its connector is inside a
    /// [`ConnectionLimitLayer`](tower_tds_limits::ConnectionLimitLayer) of
    /// [`limiter`](Self::limiter).
    ///
    /// Retries, deadline and guard have the layer's own defaults. [`shutdown`](Self::shutdown) and
    /// [`status`](Self::status) include its calls only as far as the limits do.
    #[must_use]
    pub fn layer(&self) -> TdsLayer {
        let shared = &self.shared;
        let origins = [shared.origin.clone()];
        TdsLayer::new(shared.tokens.clone(), origins, shared.limiter.clone())
            .named(shared.name.clone())
    }

    /// Returns the status: the calls in flight, and the causes of their waits.
    #[must_use]
    pub fn status(&self) -> Status {
        let shared = &self.shared;
        Status::new(&shared.name, &shared.calls, &shared.tokens, &shared.limiter)
    }

    /// The token source. [`TokenSource::ready`] is a start-up probe without a data call.
    #[must_use]
    pub fn tokens(&self) -> &TokenSource {
        &self.shared.tokens
    }

    /// The limiter of the data calls, for its snapshot.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.shared.limiter
    }
}

impl Service<Request<RequestBody>> for Client {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // The retry layer is always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> ResponseFuture {
        match self.begin(request) {
            Ok((request, under_way)) => ResponseFuture {
                state: State::Called {
                    inner: Box::pin((&self.shared.stack).call(request)),
                    under_way,
                },
            },
            Err(error) => ResponseFuture::refused(error),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("limiter", &self.shared.limiter)
            .finish_non_exhaustive()
    }
}

pin_project_lite::pin_project! {
    /// The response of a [`Client`].
    ///
    /// # Cancel safety
    /// A call that was sent is completed in the background, and frees its permits then.
    pub struct ResponseFuture {
        #[pin]
        state: State,
    }
}

pin_project_lite::pin_project! {
    #[project = StateProjection]
    enum State {
        // ## Called => done
        Called {
            // Boxed, because the future is large and callers move it.
            inner: Pin<Box<<Stack as Service<Request<RequestBody>>>::Future>>,
            // Its drop ends the call.
            under_way: UnderWay,
        },
        // ## Refused => done
        Refused { error: Option<Error> },
    }
}

// === impl ResponseFuture ===

impl ResponseFuture {
    /// Creates the future of a call that cannot be sent.
    pub(crate) const fn refused(error: Error) -> Self {
        Self {
            state: State::Refused { error: Some(error) },
        }
    }
}

impl Future for ResponseFuture {
    type Output = Result<Response<ResponseBody>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        match this.state.as_mut().project() {
            StateProjection::Called { inner, under_way } => {
                let ended = ready!(inner.as_mut().poll(cx)).map_err(named);
                under_way.ended(&ended);
                // A finished future that is kept does not count as a call.
                this.state.set(State::Refused { error: None });
                Poll::Ready(ended.map(|response| response.map(ResponseBody::new)))
            }
            // A poll after completion.
            StateProjection::Refused { error } => match error.take() {
                Some(error) => Poll::Ready(Err(error)),
                None => Poll::Pending,
            },
        }
    }
}

/// Adds the setting that solves the problem.
#[cold]
fn named(error: Error) -> Error {
    if error.is_unknown_issuer() {
        return error.with_advice(ROOT);
    }
    error
}

const SHUT_DOWN: &str = "make all calls before `shutdown`, or build another client";

const ROOT: &str =
    "give its CA to Builder::root_certificate, or put it into the configuration for Builder::tls";

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
