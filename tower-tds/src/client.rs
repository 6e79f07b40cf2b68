//! The assembled client.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use tower::util::MapErr;
use tower_oidc_cc::{BearerAuth, Provider, TokenSource};
use tower_service::Service;
use tower_tds_errors::{Classify, Error, Guard, GuardBody, Retry};
use tower_tds_limits::{Detach, Limiter, RequestLimit, TrackBody};

use crate::{
    Builder, ResponseBody, compression::Compressed, limiters::Limiters, misdirected::Misdirected,
    translate::ReadError,
};

/// A client of the service: always a valid token, never beyond the limits, typed errors.
///
/// # Backpressure
/// `poll_ready` waits for a token and for a permit, as its layers do; see
/// [`tower_oidc_cc::BearerAuth`] and [`tower_tds_limits::RequestLimit`].
///
/// # Cancel safety
/// Dropping a call that was sent sees it to its end in the background: the service counts it either
/// way, and its connection stays. It does not stop a token request that others wait for.
///
/// # Clone
/// Clones share the token, the limits and the sockets. Use a clone for one request (`oneshot`).
///
/// # Errors
/// [`Error::kind`] says what happened, and its text what to do next. That of a success that breaks
/// off comes out of its [body](ResponseBody).
///
/// # Examples
/// See the [crate's front page](crate).
#[derive(Clone)]
pub struct Client {
    stack: Stack,
    tokens: TokenSource,
    limiters: Limiters,
}

/// The body of a request; `RequestBody::default()` is that of a GET.
pub type RequestBody = Full<Bytes>;

/// Errors are read below the decoder, which has no bounds; bodies are watched there too, since
/// what is announced is counted as it is on the wire.
type Classified = Compressed<Guard<Classify<Misdirected>>, GuardBody<TrackBody<Incoming>>>;
type Limited = Detach<RequestLimit<Classified, ReadError>>;
type Tokened = BearerAuth<Limited, ReadError>;
type LayerError = <Tokened as Service<Request<RequestBody>>>::Error;
pub(crate) type Translate = fn(LayerError) -> Error;
pub(crate) type Stack = Retry<MapErr<Tokened, Translate>>;

// === impl Client ===

impl Client {
    /// Begins a client for the service at `base_url`, with tokens from the realm at `auth_url`.
    ///
    /// The token endpoint is `{auth_url}/auth/realms/ServiceConnect/protocol/openid-connect/token`
    /// (contract, "Token endpoint"). Credentials are fixed [`Credentials`](crate::Credentials), or a
    /// [`Provider`] that reads them anew for each token. The token goes to the origin of `base_url` and nowhere else.
    #[must_use]
    pub fn builder(auth_url: &str, base_url: &str, credentials: impl Into<Provider>) -> Builder {
        Builder::new(auth_url, base_url, credentials.into())
    }

    pub(crate) fn new(stack: Stack, tokens: TokenSource, limiters: Limiters) -> Self {
        Self {
            stack,
            tokens,
            limiters,
        }
    }

    pub(crate) fn limiters(&self) -> &Limiters {
        &self.limiters
    }

    /// The tokens: [`TokenSource::ready`] is a probe for start-up that makes no data call.
    #[must_use]
    pub fn tokens(&self) -> &TokenSource {
        &self.tokens
    }

    /// The limiter of the data calls, for its snapshot.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.limiters.data
    }
}

impl Service<Request<RequestBody>> for Client {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.stack.poll_ready(cx)
    }

    fn call(&mut self, request: Request<RequestBody>) -> ResponseFuture {
        ResponseFuture {
            inner: self.stack.call(request),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("limiter", &self.limiters.data)
            .finish_non_exhaustive()
    }
}

pin_project_lite::pin_project! {
    /// The response of a [`Client`].
    ///
    /// # Cancel safety
    /// What was sent is seen to its end in the background, and frees what it holds then.
    pub struct ResponseFuture {
        #[pin]
        inner: <Stack as Service<Request<RequestBody>>>::Future,
    }
}

// === impl ResponseFuture ===

impl Future for ResponseFuture {
    type Output = Result<Response<ResponseBody>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answered = self.project().inner.poll(cx);
        answered.map_ok(|response| response.map(ResponseBody::new))
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
