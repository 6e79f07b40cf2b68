//! Layer and service: a token in `poll_ready`, the header in `call`.

use std::{
    fmt, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_util::FutureExt as _;
use http::{HeaderMap, Request, Response, Uri, header::AUTHORIZATION};
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;
use tower_tds_outcome::DeadlineAt;

use crate::{
    error::{BoxError, Error, Kind, TokenError},
    future::{ResponseFuture, Sent},
    origin::{Origin, Places},
    source::TokenSource,
    state::Bearer,
};

/// Puts a bearer token on each request to the listed origins, and refuses all other requests.
///
/// If you list no origin, all requests are refused. Requests must have an absolute address, as most HTTP clients
/// require.
///
/// Follow redirects above this layer: each one is then a new request, which is compared with the list. If a client below
/// follows them, they are not compared.
///
/// # Examples
///
/// See the [crate's front page](crate).
#[derive(Clone, Debug)]
pub struct BearerAuthLayer {
    rules: Arc<Rules>,
}

/// Puts a bearer token on each request.
///
/// # Backpressure
///
/// `poll_ready` waits for a valid token, then polls the inner service. If the remote service has refused the token, the
/// request for a new one delays readiness by a second at most.
///
/// Without a token `poll_ready` does not fail. It keeps the error of the token request, which the future of the next
/// `call` returns without calling the inner service.
///
/// If you `call` without `poll_ready`, the token is used if there is one. Otherwise the token request starts, and your
/// future returns an error whose text demands readiness.
///
/// # Cancel safety
///
/// Dropping the service or the future of a call does not cancel the token request.
///
/// # Clone
///
/// Clones share the token and start unready.
///
/// # Errors
///
/// See [`Error`]: there was no token, or the request must not carry it, or the inner service failed.
///
/// If the inner service's error is boxed already, spawn `service.oneshot(request)` itself, and not an async block
/// around it: the compiler cannot prove that such a block is `Send` (rust-lang/rust#102211). tower's `Timeout` has the
/// same problem.
pub struct BearerAuth<S> {
    inner: S,
    rules: Arc<Rules>,
    readiness: Readiness,
}

/// Settings that all services of a layer share.
#[derive(Clone, Debug)]
struct Rules {
    source: TokenSource,
    places: Places,
}

/// Result of the wait for a token since the last call.
#[derive(Default)]
enum Readiness {
    #[default]
    Unready,
    /// Boxed again, because services are copied with each call, and few of them wait.
    Waiting(Box<Wait>),
    /// This state never returns to `Waiting`, because the inner service may hold a permit.
    Ready(Arc<Bearer>),
    /// No token: the next call returns this error.
    Failed(TokenError),
}

/// Wait for a token.
type Wait = Pin<Box<dyn Future<Output = Result<Arc<Bearer>, TokenError>> + Send + Sync>>;

// === impl BearerAuthLayer ===

impl BearerAuthLayer {
    /// Sends tokens of `source` to `origins` and nowhere else.
    ///
    /// Requests must have an absolute address; if your client sends only a path, use [`for_origin`](Self::for_origin).
    #[must_use]
    pub fn new(source: TokenSource, origins: impl IntoIterator<Item = Origin>) -> Self {
        Self::with(source, origins.into_iter().collect(), None)
    }

    /// Sends tokens of `source` to `origin`, even in requests that have only a path.
    ///
    /// Use it for a connection to one server: hyper's `client::conn`, or a channel of tonic's generated clients. If a
    /// request has an absolute address, it must be of this origin, and a `Host` header must name it.
    #[must_use]
    pub fn for_origin(source: TokenSource, origin: Origin) -> Self {
        Self::with(source, [origin.clone()].into(), Some(origin))
    }

    fn with(source: TokenSource, origins: Box<[Origin]>, default_origin: Option<Origin>) -> Self {
        Self {
            rules: Arc::new(Rules {
                source,
                places: Places {
                    origins,
                    default_origin,
                },
            }),
        }
    }
}

impl<S> Layer<S> for BearerAuthLayer {
    type Service = BearerAuth<S>;

    fn layer(&self, inner: S) -> Self::Service {
        BearerAuth {
            inner,
            rules: Arc::clone(&self.rules),
            readiness: Readiness::Unready,
        }
    }
}

// === impl BearerAuth ===

impl<S> BearerAuth<S> {
    /// Polls for a token: the one in use, or the result of a token request. Resolves to whether
    /// there is a token.
    #[inline]
    fn poll_token(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if let Readiness::Ready(_) = self.readiness {
            return Poll::Ready(true);
        }
        if let Readiness::Unready = self.readiness
            && let Some(bearer) = self.rules.source.shared.settled()
        {
            self.readiness = Readiness::Ready(bearer);
            return Poll::Ready(true);
        }
        self.poll_wait(cx)
    }

    #[cold]
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let source = &self.rules.source;
        loop {
            match &mut self.readiness {
                Readiness::Unready => {
                    let wait = source.clone().wait();
                    self.readiness = Readiness::Waiting(Box::new(Box::pin(wait)));
                }
                Readiness::Waiting(wait) => {
                    let waited = ready!(wait.as_mut().as_mut().poll(cx));
                    self.readiness = waited.map_or_else(Readiness::Failed, Readiness::Ready);
                }
                Readiness::Ready(_) => return Poll::Ready(true),
                Readiness::Failed(_) => return Poll::Ready(false),
            }
        }
    }

    /// Inserts the header into a request that may carry the token.
    #[inline]
    fn authorize<B>(&mut self, request: &mut Request<B>) -> Result<Sent, TokenError> {
        let (uri, headers) = (request.uri(), request.headers());
        let bearer = match mem::take(&mut self.readiness) {
            Readiness::Ready(bearer)
                if self.rules.source.shared.is_settled(&bearer)
                    && self.rules.places.contain(uri, headers) =>
            {
                bearer
            }
            readiness => self.authorize_slowly(readiness, uri, headers)?,
        };
        let deadline = DeadlineAt::of(request.extensions()).map(Instant::from_std);
        // `insert` replaces all earlier values: a server that receives two may read either.
        let header = bearer.token.header().clone();
        request.headers_mut().insert(AUTHORIZATION, header);
        Ok(Sent {
            source: self.rules.source.clone(),
            generation: bearer.generation,
            deadline,
        })
    }

    #[cold]
    fn authorize_slowly(
        &self,
        readiness: Readiness,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Arc<Bearer>, TokenError> {
        let Rules { source, places, .. } = &*self.rules;
        let missing = match readiness {
            Readiness::Failed(error) if source.shared.bearer().is_none() => return Err(error),
            // The inner service was not polled to readiness, so it cannot be called, even if there is a token now.
            Readiness::Failed(_) => return Err(Kind::Expired.into()),
            Readiness::Waiting(_) => return Err(Kind::Unready.into()),
            Readiness::Ready(_) => Kind::Expired,
            Readiness::Unready => Kind::Unready,
        };
        places.check(uri, headers)?;
        if let Some(bearer) = source.shared.bearer() {
            return Ok(bearer);
        }
        // One poll begins the token request, which goes on without its caller.
        let waited = source.clone().wait().now_or_never();
        waited.unwrap_or_else(|| Err(missing.into()))
    }
}

impl<S, B, R> Service<Request<B>> for BearerAuth<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = Error;
    type Future = ResponseFuture<S::Future, S::Response>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if !ready!(self.poll_token(cx)) {
            return Poll::Ready(Ok(()));
        }
        self.inner.poll_ready(cx).map_err(Error::below)
    }

    #[inline]
    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match self.authorize(&mut request) {
            Ok(sent) => ResponseFuture::sent(self.inner.call(request), sent),
            Err(error) => ResponseFuture::failed(error),
        }
    }
}

impl<S: Clone> Clone for BearerAuth<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            rules: Arc::clone(&self.rules),
            readiness: Readiness::Unready,
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for BearerAuth<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("BearerAuth");
        f.field("inner", &self.inner).finish_non_exhaustive()
    }
}
