//! A token on each request, beside google-cloud-auth with the token that it keeps.
//!
//! `cargo bench --manifest-path benches/peers/Cargo.toml --bench token`

#![expect(
    clippy::expect_used,
    reason = "a bench that cannot be set up must not go on"
)]

use criterion::{Criterion, criterion_group, criterion_main};
use tds_benches::{
    Echo,
    rows::Rows,
    token::{self, request_with_headers},
};
use tds_peers::google::Google;
use tower_http::auth::AddAuthorizationLayer;
use tower_layer::Layer;

fn token(c: &mut Criterion) {
    let runtime = token::runtime();
    let google = Google::new().expect("a token; is HTTP_PROXY set?");
    let fixed = AddAuthorizationLayer::bearer(&"x".repeat(1_400));

    let mut rows = Rows::new(c.benchmark_group("token"), request_with_headers);
    rows.row("bare", Echo::new());
    rows.row("static (tower-http)", fixed.layer(Echo::new()));
    rows.row("BearerAuth", token::layer(&runtime).layer(Echo::new()));
    rows.row("google-cloud-auth", google.fetched());
    rows.row("google-cloud-auth, by its tag", google.compared());
}

criterion_group!(benches, token);
criterion_main!(benches);
