//! The layer and its service: a token in `poll_ready`, the header in `call`.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Extensions, HeaderMap, Request, Response, Uri, header::AUTHORIZATION};
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    Challenge, Error, Judge, Origin, TokenError, TokenSource,
    error::Kind,
    future::{ResponseFuture, Sent},
    origin::Places,
    source::{Bearer, Shared, Wait},
};

/// Puts a bearer token on each request to the listed origins, and refuses all other requests.
///
/// An empty list refuses everything. A request must carry an absolute address, as those of the
/// usual HTTP clients do.
///
/// Follow redirects above this layer, where each hop is a request of its own and is compared with
/// the list. The redirects of a client below are not compared.
///
/// # Examples
///
/// See the [crate's front page](crate).
#[derive(Clone, Debug)]
pub struct BearerAuthLayer<J = Challenge> {
    rules: Arc<Rules>,
    judge: J,
}

/// Puts a bearer token on each request.
///
/// # Backpressure
///
/// A valid token is part of readiness and comes first: without one, the inner service is not
/// polled. With a valid token `poll_ready` only forwards. A token that the service has refused
/// delays readiness by one second at most, while its successor is requested.
///
/// `poll_ready` never fails for want of a token. A failed token request is kept and returned by the
/// future of the next `call`, which then does not call the inner service.
///
/// # Cancel safety
///
/// Dropping the service or the future of a call leaves the token request to the other callers.
///
/// # Clone
///
/// Clones share the token and start unready.
///
/// # Errors
///
/// [`Error::Token`]: there was no token, and the request was not sent.
/// [`Error::Inner`]: the inner service failed, in `poll_ready` or in its response.
/// [`Error::Refused`]: the error of the inner service stands for a refused token.
#[derive(Debug)]
pub struct BearerAuth<S, J = Challenge> {
    inner: S,
    rules: Arc<Rules>,
    judge: J,
    /// The token that was found since the last call. There is no way back to waiting then, because
    /// the inner service may hold a permit by now.
    bearer: Option<Arc<Bearer>>,
    /// The wait for a token, or its error.
    wait: Option<Box<Phase>>,
}

/// The settings that all services of a layer share.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) shared: Arc<Shared>,
    places: Places,
    deadline: Option<fn(&Extensions) -> Option<Instant>>,
}

/// Readiness without a token.
#[derive(Debug)]
enum Phase {
    Waiting(Wait),
    /// There was no token at that time, and the next call returns the error.
    Failed(TokenError),
}

// === impl BearerAuthLayer ===

impl BearerAuthLayer {
    /// Sends tokens of `source` to `origins` and nowhere else.
    ///
    /// Requests must carry an absolute address. For clients whose requests carry a path alone there
    /// is [`for_origin`](Self::for_origin).
    #[must_use]
    pub fn new(source: TokenSource, origins: impl IntoIterator<Item = Origin>) -> Self {
        Self::with(source, Places::Listed(origins.into_iter().collect()))
    }

    /// Sends tokens of `source` to `origin`, the destination of requests that carry a path alone.
    ///
    /// For connections that lead to one place: those of hyper's `client::conn`, and the channels of
    /// tonic's generated clients. An absolute address must have this origin, and a `Host` header
    /// must name it.
    #[must_use]
    pub fn for_origin(source: TokenSource, origin: Origin) -> Self {
        Self::with(source, Places::One(origin))
    }

    fn with(source: TokenSource, places: Places) -> Self {
        Self {
            rules: Arc::new(Rules {
                shared: source.shared,
                places,
                deadline: None,
            }),
            judge: Challenge,
        }
    }
}

impl<J> BearerAuthLayer<J> {
    /// Replaces the judge of outcomes; [`Challenge`] by default.
    #[must_use]
    pub fn judge<K>(self, judge: K) -> BearerAuthLayer<K> {
        BearerAuthLayer {
            rules: self.rules,
            judge,
        }
    }

    /// Reads the deadline of a call from the extensions of its request; none by default.
    ///
    /// A refused call is held until a newer token has come, for ten seconds at most. At the deadline
    /// it returns the refusal, so that the caller gets that and no timeout.
    ///
    /// # Examples
    ///
    /// ```
    /// use tokio::time::Instant;
    /// use tower_oidc_cc::{BearerAuthLayer, TokenSource};
    ///
    /// #[derive(Clone, Copy)]
    /// struct DeadlineAt(Instant);
    ///
    /// fn layer(tokens: TokenSource) -> BearerAuthLayer {
    ///     let layer = BearerAuthLayer::new(tokens, []);
    ///     layer.deadline_from(|extensions| Some(extensions.get::<DeadlineAt>()?.0))
    /// }
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn deadline_from(mut self, deadline: fn(&Extensions) -> Option<Instant>) -> Self {
        Arc::make_mut(&mut self.rules).deadline = Some(deadline);
        self
    }
}

impl<S, J: Clone> Layer<S> for BearerAuthLayer<J> {
    type Service = BearerAuth<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        BearerAuth {
            inner,
            rules: Arc::clone(&self.rules),
            judge: self.judge.clone(),
            bearer: None,
            wait: None,
        }
    }
}

// === impl BearerAuth ===

impl<S, J> BearerAuth<S, J> {
    /// Waits for the first token, the next one after an expiry, or the successor of a refused one.
    /// Resolves to whether there is a token.
    #[cold]
    fn poll_token(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let shared = &self.rules.shared;
        while self.bearer.is_none() {
            let wait = self
                .wait
                .get_or_insert_with(|| Box::new(Phase::Waiting(Wait::default())));
            let Phase::Waiting(waiting) = &mut **wait else {
                return Poll::Ready(false);
            };
            match ready!(waiting.poll(shared, cx)) {
                Ok(()) => {
                    self.wait = None;
                    self.bearer = shared.bearer();
                }
                Err(error) => **wait = Phase::Failed(error),
            }
        }
        Poll::Ready(true)
    }

    /// Returns the token for one request, if that may carry it.
    #[inline]
    fn authorize<B>(&mut self, request: &Request<B>) -> Result<Arc<Bearer>, TokenError> {
        let bearer = self.bearer.take();
        let (uri, headers) = (request.uri(), request.headers());
        match bearer.filter(|it| self.rules.shared.is_settled(it)) {
            Some(bearer) if self.rules.places.contain(uri, headers) => Ok(bearer),
            _ => self.authorize_slowly(uri, headers),
        }
    }

    #[cold]
    fn authorize_slowly(
        &mut self,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Arc<Bearer>, TokenError> {
        let shared = &self.rules.shared;
        match self.wait.take().map(|phase| *phase) {
            Some(Phase::Failed(error)) if shared.settled().is_none() => return Err(error),
            // A token has come since. The inner service is not ready, so this call cannot be made.
            Some(_) => return Err(Kind::Expired.into()),
            None => self.rules.places.check(uri, headers)?,
        }
        shared.bearer().ok_or_else(|| Kind::Expired.into())
    }
}

impl<S, J, B, R> Service<Request<B>> for BearerAuth<S, J>
where
    S: Service<Request<B>, Response = Response<R>>,
    J: Judge<S::Response, S::Error> + Clone,
{
    type Response = S::Response;
    type Error = Error<S::Error>;
    type Future = ResponseFuture<S::Future, J>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if self.bearer.is_none() {
            if self.wait.is_none() {
                self.bearer = self.rules.shared.settled();
            }
            if self.bearer.is_none() && !ready!(self.poll_token(cx)) {
                return Poll::Ready(Ok(()));
            }
        }
        self.inner.poll_ready(cx).map_err(Error::Inner)
    }

    #[inline]
    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let bearer = match self.authorize(&request) {
            Ok(bearer) => bearer,
            Err(error) => return ResponseFuture::failed(error),
        };
        let deadline = self.rules.deadline;
        let deadline = deadline.and_then(|read| read(request.extensions()));
        // Insert replaces every value there was: a server that sees two takes either.
        let header = bearer.header.clone();
        request.headers_mut().insert(AUTHORIZATION, header);
        let sent = Sent {
            rules: Arc::clone(&self.rules),
            bearer,
            deadline,
        };
        ResponseFuture::sent(self.inner.call(request), sent, self.judge.clone())
    }
}

impl<S: Clone, J: Clone> Clone for BearerAuth<S, J> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            rules: Arc::clone(&self.rules),
            judge: self.judge.clone(),
            bearer: None,
            wait: None,
        }
    }
}
