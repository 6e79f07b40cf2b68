//! The layer, and its service: it waits for a token in `poll_ready`, and sends it in `call`.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, header::AUTHORIZATION};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    Challenge, Error, Judge, Origin, TokenError, TokenSource, clock::Timestamp, error::token::Kind,
    future::ResponseFuture, origin::Places, source::Wait,
};

/// Puts a bearer token on each request to the listed origins, and refuses all other requests.
///
/// An empty list refuses everything. A request must carry an absolute address, as those of the
/// usual HTTP clients do, for its origin to be known.
///
/// Redirects are to be followed above this layer, where each hop is a request of its own with its
/// own look at the list. A client below that follows them by itself does so unseen.
///
/// # Examples
///
/// See the [crate's front page](crate).
#[derive(Clone, Debug)]
pub struct BearerAuthLayer<J = Challenge> {
    bound: Arc<Bound>,
    judge: J,
}

/// Puts a bearer token on each request.
///
/// # Backpressure
///
/// A valid token is part of readiness and comes first: while there is none, the service below is
/// not polled, and so no permit of a limiter below is held while a token is fetched. With a valid
/// token `poll_ready` only forwards.
///
/// It never fails for want of a token. A failed token request is kept and returned by the future
/// of the next `call`, which then leaves the service below alone; its readiness was not asked for
/// either.
///
/// A token can expire between `poll_ready` and `call`; so can a request be meant for an origin
/// that is not listed. Then the service below was made ready in vain and stays ready. Drop the
/// service, as `oneshot` does, if token requests run under a limit that its readiness holds.
///
/// # Cancel safety
///
/// Dropping the service while it waits, or the future that `call` returned, leaves the token
/// request to those who still wait for it.
///
/// # Clone
///
/// Clones share the token and start unready.
///
/// # Errors
///
/// [`Error::Token`]: there was no token; the request was not sent.
/// [`Error::Inner`]: the service below failed, in `poll_ready` or in its response.
#[derive(Debug)]
pub struct BearerAuth<S, J = Challenge> {
    inner: S,
    bound: Arc<Bound>,
    judge: J,
    phase: Phase,
}

/// What all services of a layer share, behind one count.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) source: TokenSource,
    pub(crate) places: Places,
}

/// How far readiness has come.
#[derive(Debug, Default)]
enum Phase {
    /// No token has been seen since the last call.
    #[default]
    Token,
    /// Nor is there one.
    Waiting(Wait),
    /// A token has been seen. From here there is no way back to waiting: the service below may
    /// hold a permit by now, or a place in the queue for one.
    Inner,
    /// There was no token then, and the next call says why.
    Failed(TokenError, Timestamp),
}

// === impl BearerAuthLayer ===

impl BearerAuthLayer {
    /// Lets the token of `source` go to `origins` and nowhere else.
    ///
    /// Each request says where it goes, by an absolute address. For clients whose requests carry a
    /// path alone there is [`for_origin`](Self::for_origin).
    #[must_use]
    pub fn new(source: TokenSource, origins: impl IntoIterator<Item = Origin>) -> Self {
        Self::bound(source, Places::Listed(origins.into_iter().collect()))
    }

    /// Lets the token of `source` go to `origin`, which is where requests go that carry a path alone.
    ///
    /// For connections that lead to one place: those of hyper's `client::conn`, and the channels of
    /// tonic's generated clients. An absolute address has to have this origin, and a `Host` header
    /// has to name it.
    #[must_use]
    pub fn for_origin(source: TokenSource, origin: Origin) -> Self {
        Self::bound(source, Places::One(origin))
    }

    /// Lets the token of `source` go wherever the connection below leads.
    ///
    /// Nothing is compared but a `Host` header with an absolute address: use it where the
    /// connection itself was made to one place, over TLS, and follows no redirect.
    #[must_use]
    pub fn any_origin(source: TokenSource) -> Self {
        Self::bound(source, Places::Any)
    }

    fn bound(source: TokenSource, places: Places) -> Self {
        Self {
            bound: Arc::new(Bound { source, places }),
            judge: Challenge,
        }
    }
}

impl<J> BearerAuthLayer<J> {
    /// Replaces what decides that a token is dead; [`Challenge`] by default.
    #[must_use]
    pub fn judge<K>(self, judge: K) -> BearerAuthLayer<K> {
        BearerAuthLayer {
            bound: self.bound,
            judge,
        }
    }
}

impl<S, J: Clone> Layer<S> for BearerAuthLayer<J> {
    type Service = BearerAuth<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        BearerAuth::new(inner, Arc::clone(&self.bound), self.judge.clone())
    }
}

// === impl BearerAuth ===

impl<S, J> BearerAuth<S, J> {
    pub(crate) fn new(inner: S, bound: Arc<Bound>, judge: J) -> Self {
        Self {
            inner,
            bound,
            judge,
            phase: Phase::default(),
        }
    }

    /// Waits for the first token, or for the next one after an expiry.
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<Phase> {
        let mut wait = match mem::take(&mut self.phase) {
            Phase::Waiting(wait) => wait,
            Phase::Token | Phase::Inner | Phase::Failed(..) => Wait::default(),
        };
        let found = self.bound.source.poll(&mut wait, cx);
        if found.is_pending() {
            self.phase = Phase::Waiting(wait);
        }
        found.map(|found| match found {
            Ok(()) => Phase::Inner,
            Err(error) => Phase::Failed(error, self.bound.source.now()),
        })
    }
}

impl<S, J, B> Service<Request<B>> for BearerAuth<S, J>
where
    S: Service<Request<B>>,
    J: Judge<S::Response, S::Error> + Clone,
{
    type Response = S::Response;
    type Error = Error<S::Error>;
    type Future = ResponseFuture<S::Future, J>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match self.phase {
            // ## (Token | Waiting) => (Inner | Failed)
            Phase::Token | Phase::Waiting(_) => {
                self.phase = if self.bound.source.is_fresh() {
                    Phase::Inner
                } else {
                    ready!(self.poll_first(cx))
                };
            }
            Phase::Inner | Phase::Failed(..) => {}
        }
        if let Phase::Failed(..) = self.phase {
            return Poll::Ready(Ok(()));
        }
        self.inner.poll_ready(cx).map_err(Error::Inner)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // Called without readiness? The token may be there nevertheless.
        let Bound { source, places } = &*self.bound;
        if let Phase::Failed(error, then) = mem::take(&mut self.phase) {
            return ResponseFuture::refused(if source.is_fresh() {
                // That was long ago. The service below is not ready, so that call cannot be made.
                TokenError::new(Kind::Expired)
            } else {
                error.later(then.age_at(source.now()))
            });
        }
        let call = match places.place(request.uri(), request.headers()) {
            Ok(call) => call,
            Err(kind) => return ResponseFuture::refused(TokenError::new(kind)),
        };
        let Some((header, sent)) = source.lend(call) else {
            return ResponseFuture::refused(TokenError::new(Kind::Expired));
        };
        // Insert replaces every value there was: a server that sees two takes either.
        request.headers_mut().insert(AUTHORIZATION, header);
        ResponseFuture::sent(self.inner.call(request), sent, self.judge.clone())
    }
}

impl<S: Clone, J: Clone> Clone for BearerAuth<S, J> {
    fn clone(&self) -> Self {
        Self::new(
            self.inner.clone(),
            Arc::clone(&self.bound),
            self.judge.clone(),
        )
    }
}
