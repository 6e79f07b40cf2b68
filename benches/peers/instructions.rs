//! Makes the same call many times, for a tool that counts instructions.
//!
//! ```text
//! cd benches/peers && cargo build --release --example instructions
//! for n in 0 100000; do for s in bare static token google google-by-tag retry tower-retry reqwest middleware reqwest-retry; do
//!   valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/instructions $s $n
//! done; done
//! ```
//!
//! The instructions of a call are the difference of two runs, divided by the difference of their
//! calls. A figure is that number less that of `bare`. For `middleware` and `reqwest-retry` it is
//! less that of `reqwest`, the bare service in their types.
//!
//! `wire-reqwest` and `wire-reqwest-retry` make whole calls over a socket, as the rows of the
//! workspace's `instructions` do. Its `serve` prints the address, which is the third argument.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a bench that cannot be set up must not go on"
)]

use std::hint::black_box;

use tds_benches::{Echo, call, token, tower_retry::ServerErrors};
use tds_peers::{
    google::Google,
    retries::{bare, empty, plain, requests, retrying, sending, service},
};
use tokio::runtime::Builder;
use tower::retry::RetryLayer as TowerRetryLayer;
use tower_http::auth::AddAuthorizationLayer;
use tower_layer::Layer;
use tower_service::Service;
use tower_tds_errors::{ClassifyLayer, RetryLayer};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let which = arguments.next().expect("one of the services above");
    let count = arguments.next().and_then(|count| count.parse().ok());
    let count: u64 = count.expect("how many calls");
    // All services are set up in each run, so that only the calls differ.
    let runtime = token::runtime();
    let token = token::layer(&runtime);
    let fixed = AddAuthorizationLayer::bearer(&"x".repeat(1_400));
    let google = Google::new().expect("a token; is HTTP_PROXY set?");
    let retry = TowerRetryLayer::new(ServerErrors::default());
    let (empty, retrying) = (empty(), retrying());
    let ours = token::request_with_headers;
    let theirs = requests(&ours()).expect("it is a url");
    if let Some(address) = arguments.next() {
        return wire(&which, count, &address);
    }
    match &*which {
        "bare" => run(Echo::new(), ours, count),
        "static" => run(fixed.layer(Echo::new()), ours, count),
        "token" => run(token.layer(Echo::new()), ours, count),
        "google" => run(google.fetched(), ours, count),
        "google-by-tag" => run(google.compared(), ours, count),
        "retry" => {
            let classified = ClassifyLayer::new().layer(Echo::new());
            run(RetryLayer::new().layer(classified), ours, count);
        }
        "tower-retry" => run(retry.layer(Echo::new()), ours, count),
        "reqwest" => run(bare(), theirs, count),
        "middleware" => run(service(&empty), theirs, count),
        "reqwest-retry" => run(service(&retrying), theirs, count),
        _ => panic!("one of the services above, not {which}"),
    }
}

/// Makes `count` calls after one that is made in any case.
fn wire(which: &str, count: u64, address: &str) {
    let client = match which {
        "wire-reqwest" => plain(),
        _ => sending(),
    };
    let url = format!("http://{address}/v1/live/bus");
    let token = format!("Bearer {}", "x".repeat(1_093));
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        for _ in 0..=count {
            let bus = client.get(&url).header("authorization", &token);
            let bus = bus.send().await.expect("an answer");
            bus.bytes().await.expect("a body");
        }
    });
}

fn run<S, R>(mut service: S, make: impl Fn() -> R, count: u64)
where
    S: Service<R>,
{
    for _ in 0..count {
        black_box(call(&mut service, black_box(make())));
    }
}
