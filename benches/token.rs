//! Token layers for the benches, which have their token already.

use std::convert::Infallible;

use bytes::Bytes;
use http::{
    HeaderValue, Request, Response, Uri,
    header::{ACCEPT, USER_AGENT},
};
use http_body_util::Full;
use tokio::runtime::{Builder, Runtime};
use tower::service_fn;
use tower_oidc_cc::{BearerAuthLayer, Credentials, Origin, TokenEndpoint, TokenSource};

/// A request without headers.
#[must_use]
pub fn request() -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    *request.uri_mut() = Uri::from_static("https://data.example.org/v1/live/bus");
    request
}

/// The same request with headers and room for more, as a program sends it.
#[must_use]
pub fn request_with_headers() -> Request<Full<Bytes>> {
    let mut request = request();
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static("bench/1.0"));
    request
}

/// A runtime for the task of the token source. It has to exist, but need not run.
///
/// # Panics
/// If the runtime cannot be built.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "a bench that cannot be set up must not go on"
)]
pub fn runtime() -> Runtime {
    let mut runtime = Builder::new_current_thread();
    runtime.enable_time().build().expect("a runtime")
}

/// A source with a token of Keycloak's size, and the origin of the requests.
///
/// # Panics
/// If there is no token.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "a bench that cannot be set up must not go on"
)]
pub fn source(runtime: &Runtime) -> (TokenSource, Origin) {
    let endpoint = TokenEndpoint::keycloak("https://auth.example.org", "ServiceConnect");
    let credentials = Credentials::new("id", "secret").expect("usable");
    let keycloak = service_fn(async |_: Request<Full<Bytes>>| {
        let token = "x".repeat(1_400);
        let reply =
            format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":86400}}"#);
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(reply)))
    });
    let tokens = TokenSource::builder(endpoint.expect("https"), credentials).build(keycloak);
    runtime.block_on(tokens.ready()).expect("a token");
    let origin = Origin::from_uri(request().uri()).expect("https");
    (tokens, origin)
}

/// A token layer that has its token already.
#[must_use]
pub fn layer(runtime: &Runtime) -> BearerAuthLayer {
    let (tokens, origin) = source(runtime);
    BearerAuthLayer::new(tokens, [origin])
}
