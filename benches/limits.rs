//! The request limit over a service that does nothing, beside tower's concurrency limit.
//!
//! `cargo bench -p tds-benches --bench limits`

use std::{hint::black_box, num::NonZeroU32, time::Duration};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use http::Request;
use http_body_util::Empty;
use tds_benches::{Echo, call};
use tower::limit::ConcurrencyLimit;
use tower_layer::Layer;
use tower_tds_limits::{Limiter, Limits, Quota, RequestLimitLayer};

fn request() -> Request<Empty<Bytes>> {
    Request::new(Empty::new())
}

fn uncontended(c: &mut Criterion) {
    let mut group = c.benchmark_group("limits/uncontended");

    let mut bare = Echo::new();
    group.bench_function("bare", |b| {
        b.iter(|| call(&mut bare, black_box(request())));
    });

    // Permits come back after 2.5 ms, so the window holds what was sent in that time.
    let wide = Quota::new(NonZeroU32::MAX, Duration::from_millis(1))
        .unwrap_or_else(|| Quota::per_second(NonZeroU32::MAX));
    let limiter = Limiter::new(Limits::new(wide));
    let mut ours = RequestLimitLayer::new(limiter).layer(Echo::new());
    group.bench_function("RequestLimit", |b| {
        b.iter(|| call(&mut ours, black_box(request())));
    });

    let mut tower = ConcurrencyLimit::new(Echo::new(), 60);
    group.bench_function("tower ConcurrencyLimit", |b| {
        b.iter(|| call(&mut tower, black_box(request())));
    });
    group.finish();
}

criterion_group!(benches, uncontended);
criterion_main!(benches);
