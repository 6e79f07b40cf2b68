//! A token on each request: the layer compared with other ways of sharing a token.
//!
//! `cargo bench -p tds-benches --bench token`
//!
//! `static` is tower-http's layer with a token that never changes, which is the least possible. The
//! other rows share a token that can change, as a prebuilt header, which is the best case of each.

#![expect(
    clippy::expect_used,
    reason = "a bench that cannot be set up must not go on"
)]

use std::sync::{Arc, Mutex, RwLock};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use http::{HeaderValue, Request, header::AUTHORIZATION};
use http_body_util::Full;
use tds_benches::{
    Cloned, Echo,
    rows::Rows,
    token::{self, request, request_with_headers},
};
use tokio::{runtime::Runtime, sync::watch};
use tower::util::MapRequest;
use tower_http::auth::AddAuthorizationLayer;
use tower_layer::Layer;

type Body = Full<Bytes>;
type Make = fn() -> Request<Body>;

/// A service that puts the output of `header` into each request.
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

fn token(c: &mut Criterion) {
    let runtime = token::runtime();
    let requests: [(&str, Make); 2] = [
        ("token, headers", request_with_headers),
        ("token, no headers", request),
    ];
    for (name, make) in requests {
        all(Rows::new(c.benchmark_group(name), make), &runtime);
    }
}

fn all(mut rows: Rows<'_, Make>, runtime: &Runtime) {
    rows.row("bare", Echo::new());
    let fixed = AddAuthorizationLayer::bearer(&"x".repeat(1_400));
    rows.row("static (tower-http)", fixed.layer(Echo::new()));
    rows.row("BearerAuth", token::layer(runtime).layer(Echo::new()));
    // `oneshot` clones the service for each call.
    let fixed = Cloned::new(fixed.layer(Echo::new()));
    rows.row("static (tower-http), cloned for each call", fixed);
    let cloned = Cloned::new(token::layer(runtime).layer(Echo::new()));
    rows.row("BearerAuth, cloned for each call", cloned);

    let shared = Arc::new(RwLock::new(header()));
    let read = move || shared.read().expect("no bench panics").clone();
    rows.row("RwLock", insert(read));
    let shared = Arc::new(Mutex::new(header()));
    let lock = move || shared.lock().expect("no bench panics").clone();
    rows.row("Mutex", insert(lock));
    let (_sender, shared) = watch::channel(header());
    rows.row("watch", insert(move || shared.borrow().clone()));
}

criterion_group!(benches, token);
criterion_main!(benches);
