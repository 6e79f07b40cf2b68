//! Allocations of a call that succeeds, in each of the peers and in ours.
//!
//! `cargo run --release --manifest-path benches/peers/Cargo.toml --example allocations`
//!
//! The allocations of making the request are not counted. `reqwest` is the bare service of the last
//! two rows.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "what cannot be set up has no allocations to count; that is all it prints"
)]

use std::hint::black_box;

use tds_benches::{Echo, call, token, tower_retry::ServerErrors};
use tds_peers::{
    google::Google,
    retries::{bare, empty, requests, retrying, service},
};
use tower::retry::RetryLayer as TowerRetryLayer;
use tower_layer::Layer;
use tower_service::Service;
use tower_tds_errors::{ClassifyLayer, RetryLayer};

fn main() {
    let ours = &token::request_with_headers;
    let runtime = token::runtime();
    let token = token::layer(&runtime);
    print("BearerAuth", token.layer(Echo::new()), ours);
    let google = Google::new().expect("a token; is HTTP_PROXY set?");
    print("google-cloud-auth", google.fetched(), ours);
    print("google-cloud-auth, by its tag", google.compared(), ours);

    let classified = ClassifyLayer::new().layer(Echo::new());
    let retry = RetryLayer::new();
    print("Retry and Classify", retry.layer(classified), ours);
    let retry = TowerRetryLayer::new(ServerErrors::default());
    print("tower::retry", retry.layer(Echo::new()), ours);
    let theirs = &requests(&ours()).expect("it is a url");
    print("reqwest", bare(), theirs);
    print("reqwest-middleware", service(&empty()), theirs);
    print("reqwest-retry in it", service(&retrying()), theirs);
}

fn print<S, R>(name: &str, mut service: S, make: &impl Fn() -> R)
where
    S: Service<R>,
{
    let request = allocations(|| drop(black_box(make())));
    let all = allocations(|| drop(call(&mut service, make())));
    println!("{name}: {}", all.saturating_sub(request));
}

/// The allocations of the second run, so that one-time allocations do not count.
fn allocations(mut work: impl FnMut()) -> u64 {
    work();
    allocation_counter::measure(work).count_total
}
