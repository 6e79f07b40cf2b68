//! The whole stack as `tower-tds` makes it, and the same layers without spans.

use std::{num::NonZeroU32, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tokio::runtime::Runtime;
use tower::ServiceBuilder;
use tower_service::Service;
use tower_tds::{
    Limiter, Limits, Quota, TdsLayer,
    layers::{
        errors::{ClassifyLayer, Error, RetryLayer},
        limits::RequestLimitLayer,
    },
};

use crate::{Echo, token};

/// A limit that no bench reaches. Permits come back after 2.5 ms, so few proofs are kept.
#[expect(
    clippy::expect_used,
    reason = "a bench that cannot be set up must not go on"
)]
fn limiter() -> Limiter {
    let wide = Quota::new(NonZeroU32::MAX, Duration::from_millis(1));
    Limiter::new(Limits::new(wide.expect("a millisecond is an interval")))
}

/// The stack as [`TdsLayer`] makes it.
#[must_use]
pub fn with_spans(runtime: &Runtime) -> impl Service<Request<Full<Bytes>>, Error = Error> + Clone {
    let (tokens, origin) = token::source(runtime);
    ServiceBuilder::new()
        .layer(TdsLayer::new(tokens, [origin], limiter()))
        .service(Echo::new())
}

/// The same layers, made by hand without spans.
#[must_use]
pub fn without_spans(
    runtime: &Runtime,
) -> impl Service<Request<Full<Bytes>>, Error = Error> + Clone {
    ServiceBuilder::new()
        .layer(RetryLayer::new())
        .layer(RequestLimitLayer::new(limiter()))
        .layer(token::layer(runtime))
        .layer(ClassifyLayer::new())
        .service(Echo::new())
}
