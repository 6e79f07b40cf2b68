//! The same call once more, with the successor of a token that was refused: layer, service, future.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::Request;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::{BearerAuth, BearerAuthLayer, Challenge, Error, Judge, future::ResponseFuture};

/// Puts a bearer token on each request, and sends it once more if the token was refused as dead.
///
/// Made by [`BearerAuthLayer::replay`]. It keeps a copy of each request that it may send again, so
/// bodies must be `Clone`: a `Full<Bytes>` or an `Empty` is, and cheaply so.
///
/// # Examples
///
/// See [`BearerReplay`].
#[derive(Clone, Debug)]
pub struct BearerReplayLayer<J = Challenge> {
    token: BearerAuthLayer<J>,
    methods: Methods,
}

/// Which requests may be sent twice.
#[derive(Clone, Copy, Debug)]
enum Methods {
    Idempotent,
    All,
}

/// Puts a bearer token on each request, and sends it once more if the token was refused as dead.
///
/// So is one whose token was lost between `poll_ready` and `call`, in the queue of a limiter say.
/// The second try is made only if there is another token by then: after a failed token request, or
/// where successors have not helped this call before, the first outcome comes back as it is, with
/// its [`Rejection`](crate::Rejection). There is no third. While the new token is on its way the first
/// outcome is held, and with it its connection: for as long as a token request and the wait for its
/// client may take, and on top of that the provider, another's lease and the save to a store.
///
/// # Backpressure
///
/// The first try uses the readiness that `poll_ready` reserved, or gives it back if the token was
/// lost by then. The second makes a clone ready, so a limiter below sees it as a request of its own.
///
/// # Cancel safety
///
/// That of [`BearerAuth`]; dropping the future during the wait for the new token makes no second try.
///
/// # Clone
///
/// That of [`BearerAuth`].
///
/// # Errors
///
/// Those of [`BearerAuth`], of whichever try was the last.
///
/// # Examples
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response, StatusCode, Uri};
/// use http_body_util::Full;
/// use tower::{Layer, ServiceExt};
/// use tower_oidc_cc::{Credentials, Origin, TokenEndpoint, BearerAuthLayer, TokenSource};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let asked = std::sync::atomic::AtomicUsize::new(0);
/// # let asked = std::sync::Arc::new(asked);
/// # let http_client = tower::service_fn(move |request: Request<Full<Bytes>>| {
/// #     let number = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
/// #     async move {
/// #         let response = Response::builder();
/// #         Ok::<_, std::convert::Infallible>(match request.headers().get("authorization") {
/// #             None => response.body(Full::<Bytes>::from(format!(
/// #                 r#"{{"access_token":"token-{number}","token_type":"Bearer"}}"#
/// #             ))),
/// #             Some(token) if token == "Bearer token-0" => response
/// #                 .status(401)
/// #                 .header("www-authenticate", r#"Bearer error="invalid_token""#)
/// #                 .body(Full::default()),
/// #             Some(_) => response.body(Full::default()),
/// #         }.expect("a response"))
/// #     }
/// # });
/// # let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect")?;
/// # let tokens = TokenSource::builder(endpoint, Credentials::new("id", "secret")?).build(http_client.clone());
/// let origin = Origin::from_uri(&Uri::from_static("https://api.example.com"))?;
/// let service = BearerAuthLayer::new(tokens, [origin]).replay().layer(http_client);
///
/// // The server has revoked the first token; the caller does not notice.
/// let request = Request::get("https://api.example.com/data").body(Full::default())?;
/// assert_eq!(service.oneshot(request).await?.status(), StatusCode::OK);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BearerReplay<S, J = Challenge> {
    token: BearerAuth<S, J>,
    methods: Methods,
}

pin_project! {
    /// Resolves to the outcome of the first try, or of the second if there was one.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the call below. A token request goes on for whoever else waits for it.
    pub struct ReplayFuture<S, J = Challenge, B = ()>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, J, B>,
        again: Option<(BearerAuth<S, J>, Request<B>)>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, J, B>
    where
        S: Service<Request<B>>,
    {
        First {
            #[pin]
            call: ResponseFuture<S::Future, J>,
        },
        Ready,
        Second {
            #[pin]
            call: ResponseFuture<S::Future, J>,
        },
    }
}

// === impl BearerReplayLayer ===

impl<J> BearerReplayLayer<J> {
    pub(crate) fn new(token: BearerAuthLayer<J>) -> Self {
        Self {
            token,
            methods: Methods::Idempotent,
        }
    }

    /// Replays all methods, `POST` and `PATCH` too; only idempotent ones by default (RFC 9110,
    /// section 9.2.2).
    ///
    /// A 401 says that the request was not carried out. This is for those who take the service's
    /// word for it.
    #[must_use]
    pub fn all_methods(self) -> Self {
        Self {
            methods: Methods::All,
            ..self
        }
    }
}

impl<S, J: Clone> Layer<S> for BearerReplayLayer<J> {
    type Service = BearerReplay<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        BearerReplay::new(self.token.layer(inner), self.methods)
    }
}

// === impl BearerReplay ===

impl<S, J> BearerReplay<S, J> {
    fn new(token: BearerAuth<S, J>, methods: Methods) -> Self {
        Self { token, methods }
    }
}

impl<S, J, B> Service<Request<B>> for BearerReplay<S, J>
where
    S: Service<Request<B>> + Clone,
    J: Judge<S::Response, S::Error> + Clone,
    B: Clone,
{
    type Response = S::Response;
    type Error = Error<S::Error>;
    type Future = ReplayFuture<S, J, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.token.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let again = match self.methods {
            Methods::All => true,
            Methods::Idempotent => request.method().is_idempotent(),
        };
        // The one that is ready makes the first call; its clone starts unready.
        let mut copy = Some((self.token.clone(), request.clone()));
        let call = self.token.call(request);
        if !call.is_replaced() {
            copy = copy.filter(|_| again);
        } else if let Some((unready, _)) = &copy {
            // Nothing was sent. What this one reserved below, a permit say, goes back now: the
            // second try may have to wait for it, and nobody should while a token is fetched.
            self.token = unready.clone();
        }
        let again = copy;
        ReplayFuture {
            state: State::First { call },
            again,
        }
    }
}

// === impl ReplayFuture ===

impl<S, J, B> Future for ReplayFuture<S, J, B>
where
    S: Service<Request<B>>,
    J: Judge<S::Response, S::Error> + Clone,
{
    type Output = Result<S::Response, Error<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                // ## First => (Ready | done)
                StateProj::First { mut call } => {
                    let outcome = ready!(call.as_mut().poll(cx));
                    if this.again.is_none() || !call.is_replaced() {
                        return Poll::Ready(outcome);
                    }
                    // It may hold what the second try needs: a connection, or a limiter's permit.
                    drop(outcome);
                    this.state.set(State::Ready);
                }
                // ## Ready => (Second | done)
                StateProj::Ready => {
                    if let Some((service, _)) = this.again {
                        ready!(service.poll_ready(cx))?;
                    }
                    let Some((mut service, request)) = this.again.take() else {
                        // It is taken here alone, and this state ends here.
                        return Poll::Pending;
                    };
                    tracing::debug!("a refused call is made once more");
                    let call = service.call(request);
                    this.state.set(State::Second { call });
                }
                // ## Second => done
                StateProj::Second { call } => return call.poll(cx),
            }
        }
    }
}

impl<S, J, B> fmt::Debug for ReplayFuture<S, J, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::First { .. } => "first",
            State::Ready => "between",
            State::Second { .. } => "second",
        };
        f.debug_struct("ReplayFuture")
            .field("state", &state)
            .finish()
    }
}
