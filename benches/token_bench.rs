//! What a token on each request costs: the layer beside other ways of sharing one.
//!
//! `cargo bench -p tds-benches --bench token`
//!
//! `static` is tower-http's layer with a token that never changes: the floor. The others share one
//! that can change, prebuilt as a header, which is the best case of each.

#![expect(
    clippy::expect_used,
    reason = "a bench that cannot be set up must not go on"
)]

use std::{
    hint::black_box,
    sync::{Arc, Mutex, RwLock},
    time::Duration,
};

use bytes::Bytes;
use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use http::{HeaderValue, Request, header::AUTHORIZATION};
use http_body_util::Full;
use tds_benches::{
    Echo, call,
    token::{self, request},
};
use tokio::{sync::watch, time::Instant};
use tower::util::MapRequest;
use tower_http::auth::AddAuthorizationLayer;
use tower_layer::Layer;
use tower_service::Service;

type Body = Full<Bytes>;

/// The shape of them all: a header from somewhere, into the request.
fn insert<F>(header: F) -> MapRequest<Echo, impl FnMut(Request<Body>) -> Request<Body> + Clone>
where
    F: Fn() -> HeaderValue + Clone,
{
    MapRequest::new(Echo::new(), move |mut request: Request<Body>| {
        request.headers_mut().insert(AUTHORIZATION, header());
        request
    })
}

fn header() -> HeaderValue {
    let mut header = HeaderValue::from_str(&format!("Bearer {}", "x".repeat(1_400)))
        .expect("it is visible ASCII");
    header.set_sensitive(true);
    header
}

/// One thread, and then two at once, each with a clone of the service.
fn both<S>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, service: S)
where
    S: Service<Request<Body>> + Clone + Send,
{
    let mut one = service.clone();
    group.bench_function(name, |b| b.iter(|| call(&mut one, black_box(request()))));
    group.bench_function(format!("{name}, 2 threads"), |b| {
        b.iter_custom(|count| {
            let times = std::thread::scope(|scope| {
                let threads = [(); 2].map(|()| {
                    let mut service = service.clone();
                    scope.spawn(move || time(&mut service, count))
                });
                threads.map(|thread| thread.join().expect("no bench panics"))
            });
            times.into_iter().max().unwrap_or_default()
        });
    });
}

fn time<S>(service: &mut S, count: u64) -> Duration
where
    S: Service<Request<Body>>,
{
    let start = Instant::now();
    for _ in 0..count {
        black_box(call(service, black_box(request())));
    }
    start.elapsed()
}

fn token(c: &mut Criterion) {
    let runtime = token::runtime();
    let mut group = c.benchmark_group("token");
    both(&mut group, "bare", Echo::new());
    let fixed = AddAuthorizationLayer::bearer(&"x".repeat(1_400));
    both(&mut group, "static (tower-http)", fixed.layer(Echo::new()));
    both(
        &mut group,
        "Token",
        token::layer(&runtime).layer(Echo::new()),
    );

    let shared = Arc::new(RwLock::new(header()));
    let read = move || shared.read().expect("no bench panics").clone();
    both(&mut group, "RwLock", insert(read));
    let shared = Arc::new(Mutex::new(header()));
    let lock = move || shared.lock().expect("no bench panics").clone();
    both(&mut group, "Mutex", insert(lock));
    let (_sender, shared) = watch::channel(header());
    both(&mut group, "watch", insert(move || shared.borrow().clone()));
    group.finish();
}

criterion_group!(benches, token);
criterion_main!(benches);
