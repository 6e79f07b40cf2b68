//! The service: it keeps a copy of what it may send again.

use std::task::{Context, Poll};

use http::Request;
use tower_service::Service;

use super::{future::ReplayFuture, layer::Methods};
use crate::{BearerAuth, Challenge, Error, Judge};

/// Puts a bearer token on each request, and sends it once more if the token was refused as dead.
///
/// So is one whose token was lost between `poll_ready` and `call`, in the queue of a limiter say.
/// The second try is made only if there is another token by then: after a refused refresh, or
/// when tokens were found dead a moment ago, the first outcome comes back as it is, with its
/// [`Rejection`](crate::Rejection). There is no third. While the new token is on its way, for as long
/// as a token request and the wait for its client may take, the first outcome is held, and with it
/// its connection.
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

// === impl BearerReplay ===

impl<S, J> BearerReplay<S, J> {
    pub(super) fn new(token: BearerAuth<S, J>, methods: Methods) -> Self {
        Self { token, methods }
    }

    /// The service below, with its token.
    pub fn get_ref(&self) -> &BearerAuth<S, J> {
        &self.token
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
        let again = again.then(|| (self.token.clone(), request.clone()));
        let call = self.token.call(request);
        if call.is_replaced()
            && let Some((unready, _)) = &again
        {
            // Nothing was sent. What this one reserved below, a permit say, goes back now: the
            // second try may have to wait for it, and nobody should while a token is fetched.
            self.token = unready.clone();
        }
        ReplayFuture::new(call, again)
    }
}
