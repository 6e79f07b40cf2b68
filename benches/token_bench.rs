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
    token::{self, request, request_with_headers},
};
use tokio::{runtime::Runtime, sync::watch, time::Instant};
use tower::util::MapRequest;
use tower_http::auth::AddAuthorizationLayer;
use tower_layer::Layer;
use tower_service::Service;

type Body = Full<Bytes>;
type Make = fn() -> Request<Body>;
/// A group, and the requests of its calls.
type Group<'a> = (BenchmarkGroup<'a, WallTime>, Make);

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
fn both<S>(group: &mut Group<'_>, name: &str, service: S)
where
    S: Service<Request<Body>> + Clone + Send,
{
    let (group, make) = group;
    let make = *make;
    let mut one = service.clone();
    group.bench_function(name, |b| b.iter(|| call(&mut one, black_box(make()))));
    group.bench_function(format!("{name}, 2 threads"), |b| {
        b.iter_custom(|count| {
            let times = std::thread::scope(|scope| {
                let threads = [(); 2].map(|()| {
                    let mut service = service.clone();
                    scope.spawn(move || time(&mut service, make, count))
                });
                threads.map(|thread| thread.join().expect("no bench panics"))
            });
            times.into_iter().max().unwrap_or_default()
        });
    });
}

fn time<S>(service: &mut S, make: Make, count: u64) -> Duration
where
    S: Service<Request<Body>>,
{
    let start = Instant::now();
    for _ in 0..count {
        black_box(call(service, black_box(make())));
    }
    start.elapsed()
}

fn token(c: &mut Criterion) {
    let runtime = token::runtime();
    let requests: [(&str, Make); 2] = [
        ("token, headers", request_with_headers),
        ("token, no headers", request),
    ];
    for (name, make) in requests {
        all(&mut (c.benchmark_group(name), make), &runtime);
    }
}

fn all(group: &mut Group<'_>, runtime: &Runtime) {
    both(group, "bare", Echo::new());
    let fixed = AddAuthorizationLayer::bearer(&"x".repeat(1_400));
    both(group, "static (tower-http)", fixed.layer(Echo::new()));
    both(group, "Token", token::layer(runtime).layer(Echo::new()));

    let shared = Arc::new(RwLock::new(header()));
    let read = move || shared.read().expect("no bench panics").clone();
    both(group, "RwLock", insert(read));
    let shared = Arc::new(Mutex::new(header()));
    let lock = move || shared.lock().expect("no bench panics").clone();
    both(group, "Mutex", insert(lock));
    let (_sender, shared) = watch::channel(header());
    both(group, "watch", insert(move || shared.borrow().clone()));
}

criterion_group!(benches, token);
criterion_main!(benches);
