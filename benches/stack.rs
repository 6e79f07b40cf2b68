//! Each layer alone, and all of them in the order of `tower-tds`, over a service that does nothing.
//!
//! `cargo bench -p tds-benches --bench stack`

#![expect(
    clippy::expect_used,
    reason = "a bench that cannot be set up must not go on"
)]

use std::{hint::black_box, num::NonZeroU32, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use tds_benches::{
    Echo, call,
    token::{self, request},
    whole,
};
use tower::ServiceBuilder;
use tower_layer::Layer;
use tower_tds_errors::{ClassifyLayer, Error, Kind, RetryLayer};
use tower_tds_limits::{Limiter, Limits, Quota, ReadResponse, RequestLimitLayer};

/// A limit that never binds. Permits come back after 2.5 ms, so that few are kept.
fn limits() -> RequestLimitLayer {
    let wide = Quota::new(NonZeroU32::MAX, Duration::from_millis(1));
    let wide = wide.expect("a millisecond is an interval");
    RequestLimitLayer::new(Limiter::new(Limits::new(wide)))
}

fn stack(c: &mut Criterion) {
    let runtime = token::runtime();
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

    let mut service = token::layer(&runtime).layer(Echo::new());
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
        .layer(limits().feedback(ReadResponse))
        .layer(token::layer(&runtime))
        .layer(ClassifyLayer::new())
        .service(Echo::new());
    group.bench_function("all", |b| {
        b.iter(|| call(&mut service, black_box(request())));
    });

    let mut service = whole::without(&runtime);
    group.bench_function("whole, without spans", |b| {
        b.iter(|| call(&mut service, black_box(request())));
    });

    let mut service = whole::with_spans(&runtime);
    group.bench_function("whole", |b| {
        b.iter(|| call(&mut service, black_box(request())));
    });
    group.finish();
}

criterion_group!(benches, stack);
criterion_main!(benches);
