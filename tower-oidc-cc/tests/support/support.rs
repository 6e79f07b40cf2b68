//! A token endpoint and a data service that count what reaches them, and a probe of readiness.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

pub(crate) mod endpoint;
pub(crate) mod probe;
pub(crate) mod store;

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response, StatusCode, Uri, header::WWW_AUTHENTICATE};
use http_body_util::Full;
use tokio::time::Instant;
use tower::{Service, ServiceExt as _};
use tower_oidc_cc::{
    AccessToken, BearerAuthLayer, Cause, Credentials, Origin, Outcome, Resend, TokenEndpoint,
    TokenError, TokenSource, TokenSourceBuilder,
};

pub(crate) use self::endpoint::Endpoint;

pub(crate) type Body = Full<Bytes>;

pub(crate) const SECRET: &str = "canary-secret-0815";
pub(crate) const HOUR: u64 = 3_600;
pub(crate) const DAY: u64 = 24 * HOUR;
pub(crate) const DATA: &str = "https://api.example.com/data";

/// The usual settings.
pub(crate) fn builder() -> TokenSourceBuilder {
    let uri = TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect").unwrap();
    let credentials = Credentials::new("client", SECRET).unwrap();
    TokenSource::builder(uri, credentials)
}

/// The usual settings, on a wall clock that moves with the paused one.
pub(crate) fn timed() -> TokenSourceBuilder {
    let start = Instant::now();
    let wall = SystemTime::UNIX_EPOCH + secs(1_700_000_000);
    builder().wall_clock(move || wall + start.elapsed())
}

/// The token in use, without a wait.
pub(crate) fn current(tokens: &TokenSource) -> Option<AccessToken> {
    tokens.token().now_or_never()?.ok()
}

/// A handle over `endpoint`, with the usual settings.
pub(crate) fn tokens(endpoint: &Endpoint) -> TokenSource {
    builder().build(endpoint.clone())
}

pub(crate) fn origin() -> Origin {
    Origin::from_uri(&Uri::from_static(DATA)).unwrap()
}

pub(crate) fn layer(tokens: &TokenSource) -> BearerAuthLayer {
    BearerAuthLayer::new(tokens.clone(), [origin()])
}

pub(crate) fn get(uri: &str) -> Request<Body> {
    Request::get(uri).body(Body::default()).unwrap()
}

/// A data service that returns the Authorization header it received, or `-`.
pub(crate) fn echo()
-> impl Service<Request<Body>, Response = Response<String>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    tower::service_fn(|request: Request<Body>| async move { Ok(Response::new(seen(&request))) })
}

/// All the values of the Authorization header, in one line.
pub(crate) fn seen(request: &Request<Body>) -> String {
    let values = request.headers().get_all("authorization");
    let values: Vec<_> = values.iter().map(|v| v.to_str().unwrap()).collect();
    if values.is_empty() {
        return "-".to_owned();
    }
    values.join(",")
}

/// The 401 of a gateway for a token that is not valid.
pub(crate) fn dead() -> Response<String> {
    unauthorized("invalid token")
}

/// A 401 without a reason.
pub(crate) fn empty() -> Response<String> {
    let mut response = Response::new(String::new());
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response
}

/// The 401 of a gateway with this error.
pub(crate) fn unauthorized(error: &str) -> Response<String> {
    let mut response = Response::new(String::new());
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    let challenge = format!(r#"Bearer realm="kong",error="{error}""#);
    response
        .headers_mut()
        .insert(WWW_AUTHENTICATE, challenge.parse().unwrap());
    response
}

/// Sends a refused call once more, if the layer marks it as worth repeating, like a retry layer.
#[derive(Clone)]
pub(crate) struct Again<S>(pub(crate) S);

impl<S> Service<Request<Body>> for Again<S>
where
    S: Service<Request<Body>, Response = Response<String>, Future: Send> + Clone + Send + 'static,
    S::Error: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (again, copy) = (self.0.clone(), request.clone());
        let call = self.0.call(request);
        Box::pin(async move {
            let response = call.await?;
            if is_worth_a_resend(&response) {
                return again.oneshot(copy).await;
            }
            Ok(response)
        })
    }
}

/// Whether the layer says that a resend helps at once.
pub(crate) fn is_worth_a_resend<B>(refused: &Response<B>) -> bool {
    let cause = refused.extensions().get::<Cause>();
    cause.is_some_and(|it| it.resend == Some(Resend::Free))
}

/// What a call without a token means to the layers above.
pub(crate) fn outcome(error: &TokenError) -> Outcome {
    Cause::of(error).unwrap().outcome
}

/// The error of a call without a token.
pub(crate) fn token_error(error: tower_oidc_cc::Error) -> TokenError {
    error
        .token()
        .cloned()
        .unwrap_or_else(|| panic!("{error:?}"))
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Lets every task that can run do so, without a step of the clock.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Polls a future by hand, with a waker that has no effect.
pub(crate) fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
