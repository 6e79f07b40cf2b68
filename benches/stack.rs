//! Each layer alone, and all of them in the order of `tower-tds`, over a service that does nothing.
//!
//! `cargo bench -p tds-benches --bench stack`

#![expect(
    clippy::expect_used,
    reason = "a bench that cannot be set up must not go on"
)]

use std::{convert::Infallible, hint::black_box, num::NonZeroU32, time::Duration};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use http::{Request, Response};
use http_body_util::Full;
use tds_benches::{Echo, call};
use tower::{ServiceBuilder, service_fn};
use tower_layer::Layer;
use tower_oidc_cc::{Credentials, Origin, TokenEndpoint, TokenLayer, Tokens};
use tower_tds_errors::{ClassifyLayer, Error, Kind, RetryLayer};
use tower_tds_limits::{Limiter, Limits, Quota, RequestLimitLayer};

fn request() -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    *request.uri_mut() = http::Uri::from_static("https://data.example.org/v1/live/bus");
    request
}

/// Permits come back after 2.5 ms, so the window holds what was sent in that time.
fn limits() -> RequestLimitLayer {
    let wide = Quota::new(NonZeroU32::MAX, Duration::from_millis(1));
    let wide = wide.expect("a millisecond is an interval");
    RequestLimitLayer::new(Limiter::new(Limits::new(wide)))
}

/// A token layer that has its token, of the size that a Keycloak gives.
fn token(runtime: &tokio::runtime::Runtime) -> TokenLayer {
    let endpoint = TokenEndpoint::keycloak("https://auth.example.org", "ServiceConnect");
    let credentials = Credentials::new("id", "secret").expect("usable");
    let keycloak = service_fn(async |_: Request<Full<Bytes>>| {
        let token = "x".repeat(1_400);
        let reply =
            format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":86400}}"#);
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(reply)))
    });
    let tokens = Tokens::builder(endpoint.expect("https"), credentials).build(keycloak);
    runtime.block_on(tokens.ready()).expect("a token");
    let origin = Origin::from_uri(request().uri()).expect("https");
    TokenLayer::new(tokens, [origin])
}

fn stack(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let mut group = c.benchmark_group("stack");

    let mut bare = Echo::new();
    group.bench_function("bare", |b| b.iter(|| call(&mut bare, black_box(request()))));

    let mut service = ClassifyLayer::new().layer(Echo::new());
    group.bench_function("Classify", |b| {
        b.iter(|| call(&mut service, black_box(request())));
    });

    let mut service = limits().layer(Echo::new());
    group.bench_function("RequestLimit", |b| {
        b.iter(|| call(&mut service, black_box(request())));
    });

    let mut service = token(&runtime).layer(Echo::new());
    group.bench_function("Token", |b| {
        b.iter(|| call(&mut service, black_box(request())));
    });

    let mut service = RetryLayer::new().layer(ClassifyLayer::new().layer(Echo::new()));
    group.bench_function("Retry and Classify", |b| {
        b.iter(|| call(&mut service, black_box(request())));
    });

    let mut service = ServiceBuilder::new()
        .layer(RetryLayer::new())
        .map_err(|_| Error::new(Kind::Unrecognized, "a bench has no errors"))
        .layer(token(&runtime))
        .layer(limits())
        .layer(ClassifyLayer::new())
        .service(Echo::new());
    group.bench_function("all", |b| {
        b.iter(|| call(&mut service, black_box(request())));
    });
    group.finish();
}

criterion_group!(benches, stack);
criterion_main!(benches);
