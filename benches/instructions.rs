//! Makes the same call many times, for a tool that counts instructions.
//!
//! ```text
//! cargo build --release -p tds-benches --example instructions
//! for n in 0 100000; do for s in bare token static; do
//!   valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/instructions $s $n
//! done; done
//! ```
//!
//! The figure is the difference of two counts of calls, divided by it, less the same of `bare`.

#![expect(
    clippy::expect_used,
    reason = "a bench that cannot be set up must not go on"
)]

use std::hint::black_box;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tds_benches::{Echo, call, token};
use tower_http::auth::AddAuthorizationLayer;
use tower_layer::Layer;
use tower_service::Service;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let which = arguments.next().expect("bare, token or static");
    let count = arguments.next().and_then(|count| count.parse().ok());
    let count: u64 = count.expect("how many calls");
    let runtime = token::runtime();
    // All are set up whichever is run, so that only the calls differ.
    let layer = token::layer(&runtime);
    let fixed = AddAuthorizationLayer::bearer(&"x".repeat(1_400));
    match &*which {
        "token" => run(layer.layer(Echo::new()), count),
        "static" => run(fixed.layer(Echo::new()), count),
        _ => run(Echo::new(), count),
    }
}

fn run<S>(mut service: S, count: u64)
where
    S: Service<Request<Full<Bytes>>>,
{
    for _ in 0..count {
        black_box(call(&mut service, black_box(token::request())));
    }
}
