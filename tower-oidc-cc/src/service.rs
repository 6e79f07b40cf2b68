//! Layer, service and the future of a call: a token in `poll_ready`, the header in `call`, and the refused call that is
//! held while its token is replaced.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response, header::AUTHORIZATION};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;
use tower_tds_outcome::{Cause, DeadlineAt, Outcome};

use crate::{
    error::{BoxError, Error, ErrorKind, Refresh, TokenError, refusal},
    origin::{AllowedOrigins, Origin},
    source::TokenSource,
    state::{Bearer, State},
    task::Owner,
};

/// Puts a bearer token on each request to the listed origins, and refuses all other requests.
///
/// If you list no origin, all requests are refused. Requests must have an absolute address, as most HTTP clients
/// require.
///
/// Follow redirects above this layer: each one is then a new request, which is compared with the list. If a client below
/// follows them, they are not compared.
///
/// If your service refuses tokens with a status of its own, put an [`Outcome`](tower_tds_outcome::Outcome) into the
/// extensions of its response below this layer, by `map_response`. An error from below is read by the outcome that it
/// carries.
///
/// # Examples
///
/// See the [crate's front page](crate).
#[derive(Clone, Debug)]
pub struct BearerAuthLayer {
    settings: Arc<LayerSettings>,
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
/// If you `call` without `poll_ready`, the token is used if there is one. Otherwise your future returns an error whose
/// text demands readiness.
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
    settings: Arc<LayerSettings>,
    /// Token of the next call. From then on there is no wait, because the inner service may hold a permit.
    bearer: Option<Arc<Bearer>>,
    pending: Option<Box<Pending>>,
}

pin_project! {
    /// Resolves to the response of the inner service, or to an error. If the error has a [`token`](Error::token) error,
    /// nothing was sent.
    ///
    /// A refused call is held while its token is being replaced: until the token request has a result, for ten seconds
    /// at most, and not beyond the call's deadline ([`DeadlineAt`](tower_tds_outcome::DeadlineAt)). When you send it
    /// again, it carries the new token. If an outer timeout of yours is shorter, the call ends as a timeout.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the call of the inner service, but not a token request.
    pub struct ResponseFuture<F, T> {
        #[pin]
        call: CallState<F, T>,
    }
}

pin_project! {
    #[project = CallStateProj]
    enum CallState<F, T> {
        Sent {
            #[pin]
            inner: F,
            sent: SentToken,
        },
        Held {
            // `None` once the call has ended. Boxed, because each move of a future copies the largest of its states.
            result: Option<Box<Result<T, BoxError>>>,
            wait: SyncBoxFuture<Cause>,
        },
        Failed {
            error: TokenError,
        },
    }
}

/// Token and deadline of a sent call.
#[derive(Clone)]
struct SentToken {
    owner: Arc<Owner>,
    /// Number of the token that was sent.
    generation: u64,
    deadline: Option<Instant>,
}

/// Settings that all services of a layer share.
#[derive(Clone, Debug)]
struct LayerSettings {
    owner: Arc<Owner>,
    allowed: AllowedOrigins,
}

/// A wait for a token since the last call. Boxed, because services are copied with each call, and few of them wait.
enum Pending {
    Waiting(SyncBoxFuture<Result<Arc<Bearer>, TokenError>>),
    /// No token: the next call returns this error.
    Failed(TokenError),
}

/// Wait for a token, or for what becomes of a refused one.
type SyncBoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + Sync>>;

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
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{Request, Response, Uri};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_oidc_cc::{BearerAuthLayer, Origin};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use bytes::Bytes;
    /// # use http_body_util::Full;
    /// # let client = service_fn(|_: Request<Full<Bytes>>| async {
    /// #     let reply = r#"{"access_token":"abc","token_type":"Bearer","expires_in":86400}"#;
    /// #     Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(reply))))
    /// # });
    /// # let endpoint = tower_oidc_cc::TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect")?;
    /// # let credentials = tower_oidc_cc::Credentials::new("id", "secret")?;
    /// # let tokens = tower_oidc_cc::TokenSource::builder(endpoint, credentials).build(client);
    /// let origin = Origin::from_uri(&Uri::from_static("https://data.example.com"))?;
    /// // A connection to that server takes the place of this function.
    /// let connection = service_fn(async |request: Request<String>| {
    ///     assert_eq!(request.headers()["authorization"], "Bearer abc");
    ///     Ok::<_, std::convert::Infallible>(Response::new(String::from("bus 307")))
    /// });
    /// let service = BearerAuthLayer::for_origin(tokens, origin).layer(connection);
    /// service.oneshot(Request::get("/v1/live/bus").body(String::new())?).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn for_origin(source: TokenSource, origin: Origin) -> Self {
        Self::with(source, [origin.clone()].into(), Some(origin))
    }

    fn with(source: TokenSource, origins: Box<[Origin]>, default_origin: Option<Origin>) -> Self {
        Self {
            settings: Arc::new(LayerSettings {
                owner: source.owner,
                allowed: AllowedOrigins {
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
            settings: Arc::clone(&self.settings),
            bearer: None,
            pending: None,
        }
    }
}

// === impl BearerAuth ===

impl<S> BearerAuth<S> {
    /// Polls for a token: the one in use, or the result of a token request. Resolves to whether
    /// there is a token.
    #[inline]
    fn poll_token(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.bearer.is_none() && self.pending.is_none() {
            self.bearer = self.settings.owner.settled();
        }
        match self.bearer {
            Some(_) => Poll::Ready(true),
            None => self.poll_wait(cx),
        }
    }

    #[cold]
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let owner = &self.settings.owner;
        let begin = || Box::new(Pending::Waiting(Box::pin(Arc::clone(owner).wait())));
        let pending = self.pending.get_or_insert_with(begin);
        if let Pending::Waiting(wait) = &mut **pending {
            match ready!(wait.as_mut().poll(cx)) {
                Ok(bearer) => {
                    self.bearer = Some(bearer);
                    self.pending = None;
                }
                Err(error) => **pending = Pending::Failed(error),
            }
        }
        Poll::Ready(self.bearer.is_some())
    }

    /// Inserts the header into a request that may carry the token.
    #[inline]
    fn authorize<B>(&mut self, request: &mut Request<B>) -> Result<SentToken, TokenError> {
        let LayerSettings { owner, allowed } = &*self.settings;
        allowed.check(request.uri(), request.headers())?;
        let bearer = match self.bearer.take() {
            Some(bearer) if owner.is_settled(&bearer) => bearer,
            _ => unsettled(owner, self.pending.take())?,
        };
        let deadline = request.extensions().get::<DeadlineAt>().map(|it| it.at);
        // `insert` replaces all earlier values: a server that receives two may read either.
        let header = bearer.token.header().clone();
        request.headers_mut().insert(AUTHORIZATION, header);
        Ok(SentToken {
            owner: Arc::clone(owner),
            generation: bearer.generation,
            deadline: deadline.map(Instant::from_std),
        })
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
        // Built in place, because each move of a future copies it.
        match self.authorize(&mut request) {
            Ok(sent) => ResponseFuture {
                call: CallState::Sent {
                    inner: self.inner.call(request),
                    sent,
                },
            },
            Err(error) => ResponseFuture {
                call: CallState::Failed { error },
            },
        }
    }
}

impl<S: Clone> Clone for BearerAuth<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            settings: Arc::clone(&self.settings),
            bearer: None,
            pending: None,
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for BearerAuth<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("BearerAuth");
        f.field("inner", &self.inner).finish_non_exhaustive()
    }
}

// === impl ResponseFuture ===

impl<F, R, E> Future for ResponseFuture<F, Response<R>>
where
    F: Future<Output = Result<Response<R>, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Response<R>, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut call = self.project().call;
        loop {
            match call.as_mut().project() {
                // ## Sent => (Held | done)
                CallStateProj::Sent { inner, sent } => {
                    // `polled` is matched by reference, because each move of a response copies it.
                    let polled = inner.poll(cx);
                    if let Poll::Ready(Ok(response)) = &polled
                        && Outcome::of_response(response) == Outcome::Accepted
                    {
                        sent.owner.accept(sent.generation);
                        return polled.map_err(Error::below);
                    }
                    let result = ready!(polled).map_err(Into::into);
                    let Some(wait) = sent.refused(&result) else {
                        return Poll::Ready(result.map_err(Error::below));
                    };
                    let result = Some(Box::new(result));
                    call.set(CallState::Held { result, wait });
                }
                // ## Held => done
                CallStateProj::Held { result, wait } => {
                    let cause = ready!(wait.as_mut().poll(cx));
                    let result = result.take();
                    return result.map_or(Poll::Pending, |it| Poll::Ready(refused(*it, cause)));
                }
                // ## Failed => done
                CallStateProj::Failed { error } => return Poll::Ready(Err(error.clone().into())),
            }
        }
    }
}

impl<F, T> fmt::Debug for ResponseFuture<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture")
    }
}

// === impl SentToken ===

impl SentToken {
    /// Reports a refused call, and returns its wait. `None` if it was not refused.
    #[cold]
    fn refused<R>(&self, result: &Result<Response<R>, BoxError>) -> Option<SyncBoxFuture<Cause>> {
        let outcome = match result {
            Ok(response) => Outcome::of_response(response),
            Err(error) => Outcome::of_error(&**error).unwrap_or(Outcome::Lost),
        };
        let sent = self.generation;
        let reported = match outcome {
            Outcome::TokenRefused => self.owner.report(|it, now| it.refused(sent, now)),
            Outcome::RoleMissing => self.owner.report(|it, now| it.role_missing(sent, now)),
            Outcome::NoHeader => Err(Refresh::None),
            // Any other outcome shows nothing about the token.
            _ => return None,
        };
        Some(Box::pin(self.clone().hold(outcome, reported)))
    }

    /// Waits until the flight that replaces the token, or the time for it, has ended.
    async fn hold(self, outcome: Outcome, reported: Result<Option<u64>, Refresh>) -> Cause {
        let sent = self.generation;
        if let Ok(flight) = reported {
            let until = self.deadline.and_then(|it| it.checked_sub(HEADROOM));
            self.owner.ended(flight, LONGEST, until).await;
        }
        let look = |it: &mut State, _| (it.generation, it.is_untried(sent));
        let (newest, is_untried) = self.owner.with(look);
        let refresh = match reported {
            Err(refresh) => refresh,
            Ok(_) if newest > sent => Refresh::Replaced,
            Ok(_) if outcome == Outcome::TokenRefused => Refresh::Requested,
            Ok(_) => Refresh::None,
        };
        refusal(outcome, refresh, is_untried)
    }
}

/// Returns the token of a call whose service is not ready, or whose token is not settled.
#[cold]
fn unsettled(owner: &Owner, pending: Option<Box<Pending>>) -> Result<Arc<Bearer>, TokenError> {
    match pending.map(|it| *it) {
        Some(Pending::Failed(error)) => Err(error),
        _ => owner.bearer().ok_or_else(|| ErrorKind::Unready.into()),
    }
}

fn refused<R>(result: Result<Response<R>, BoxError>, cause: Cause) -> Result<Response<R>, Error> {
    tracing::debug!(?cause, "the service refused a call");
    match result {
        Ok(mut response) => {
            response.extensions_mut().insert(cause);
            Ok(response)
        }
        Err(error) => Err(Error::refused(error, cause)),
    }
}

/// Longest time that a refusal is held: the default timeout of a token request.
const LONGEST: Duration = Duration::from_secs(10);
/// Time from the return of a held refusal to the deadline. Without it, the timer of a layer above
/// might fire first: tokio's are exact to one millisecond.
const HEADROOM: Duration = Duration::from_millis(10);
