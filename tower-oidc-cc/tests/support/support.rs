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
    fmt::Debug,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response, StatusCode, Uri, header::WWW_AUTHENTICATE};
use http_body_util::Full;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
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

/// The usual settings, on a wall clock that moves with the paused one: one clock for all programs of a test.
pub(crate) fn timed() -> TokenSourceBuilder {
    builder().wall_clock(wall(0))
}

/// The wall clock of a test, so many seconds ahead.
pub(crate) fn wall(ahead: i64) -> impl Fn() -> SystemTime + Send + Sync + 'static {
    thread_local!(static START: Instant = Instant::now());
    let start = START.with(|it| *it);
    let wall = SystemTime::UNIX_EPOCH + secs(1_700_000_000_u64.saturating_add_signed(ahead));
    move || wall + start.elapsed()
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

/// A service below the layer, or the layer over one.
pub(crate) trait Data:
    Service<Request<Body>, Response = Response<String>, Future: Send> + Clone + Send + 'static
{
}

impl<S> Data for S where
    S: Service<Request<Body>, Response = Response<String>, Future: Send> + Clone + Send + 'static
{
}

/// A data service that returns the Authorization header it received, or `-`.
pub(crate) fn echo() -> impl Data<Error = Infallible> + Sync {
    gateway(|_, _| None)
}

/// A data service that refuses a request with this header by a response of its own, and returns the header otherwise.
pub(crate) fn gateway(
    refuse: impl Fn(&str, &Request<Body>) -> Option<Response<String>> + Clone + Send + Sync + 'static,
) -> impl Data<Error = Infallible> + Sync {
    tower::service_fn(move |request: Request<Body>| {
        let token = seen(&request);
        let refused = refuse(&token, &request);
        async move { Ok(refused.unwrap_or_else(|| Response::new(token))) }
    })
}

/// A data service that accepts a token by its age.
pub(crate) fn by_age(
    endpoint: &Endpoint,
    accepts: impl Fn(Duration) -> bool + Clone + Send + Sync + 'static,
) -> impl Data<Error = Infallible> + Sync {
    let endpoint = endpoint.clone();
    gateway(move |token, _| (!accepts(endpoint.age(token))).then(dead))
}

/// Calls every `pace` seconds for `time`, and returns the seconds of the refused calls.
pub(crate) async fn refused(service: &impl Data<Error: Debug>, pace: u64, time: u64) -> Vec<u64> {
    let (mut refused, start) = (Vec::new(), Instant::now());
    while start.elapsed() < secs(time) {
        let at = start.elapsed().as_secs();
        let response = service.clone().oneshot(get(DATA)).await.unwrap();
        if response.status() != StatusCode::OK {
            refused.push(at);
        }
        sleep(secs(pace)).await;
    }
    refused
}

/// The results of so many calls at once.
pub(crate) async fn at_once<S: Data<Error: Send>>(
    service: &S,
    count: usize,
) -> Vec<Result<Response<String>, S::Error>> {
    let calls = (0..count).map(|_| service.clone().oneshot(get(DATA)));
    calls.collect::<JoinSet<_>>().join_all().await
}

/// The number of a token of an [`Endpoint`].
pub(crate) fn number(token: &str) -> usize {
    token.rsplit_once('-').unwrap().1.parse().unwrap()
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

/// A 401 with this body.
pub(crate) fn bare(body: &str) -> Response<String> {
    let mut response = Response::new(body.to_owned());
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response
}

/// The 401 of a gateway with this error.
pub(crate) fn unauthorized(error: &str) -> Response<String> {
    let mut response = bare("");
    let challenge = format!(r#"Bearer realm="kong",error="{error}""#);
    response
        .headers_mut()
        .insert(WWW_AUTHENTICATE, challenge.parse().unwrap());
    response
}

/// Sends a refused call once more, if the layer marks it as worth repeating, like a retry layer.
#[derive(Clone)]
pub(crate) struct Again<S>(pub(crate) S);

impl<S: Data<Error: Send>> Service<Request<Body>> for Again<S> {
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

/// Whether a resend helps at once, by the layer's cause.
pub(crate) fn is_worth_a_resend<B>(refused: &Response<B>) -> bool {
    let cause = refused.extensions().get::<Cause>();
    cause.is_some_and(|it| it.resend == Some(Resend::Free))
}

/// Outcome of a call without a token, for the layers above.
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
