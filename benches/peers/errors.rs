//! Classification and retries of a call that succeeds, compared with reqwest-retry in
//! reqwest-middleware.
//!
//! `cargo bench --manifest-path benches/peers/Cargo.toml --bench errors`
//!
//! Each of the two groups has a bare service in its own types. Compare a row with the bare service
//! of its group.

#![expect(
    clippy::expect_used,
    reason = "a bench that cannot be set up must not go on"
)]

use criterion::{Criterion, criterion_group, criterion_main};
use tds_benches::{Echo, made::Made, rows::Rows, tower_retry::ServerErrors};
use tds_peers::retries::{bare, empty, requests, retrying, service};
use tower::retry::RetryLayer as TowerRetryLayer;
use tower_layer::Layer;
use tower_tds_errors::{ClassifyLayer, RetryLayer};

fn tower(c: &mut Criterion) {
    let made = Made::with_headers();
    let mut rows = Rows::new(c.benchmark_group("errors, tower"), || made.request());
    let classified = || ClassifyLayer::new().layer(Echo::new());
    rows.row("bare", Echo::new());
    rows.row("Retry and Classify", RetryLayer::new().layer(classified()));
    let layer = RetryLayer::new().budget(None);
    rows.row(
        "Retry without its budget, and Classify",
        layer.layer(classified()),
    );
    let layer = TowerRetryLayer::new(ServerErrors::default());
    rows.row("tower::retry with TpsBudget", layer.layer(Echo::new()));
}

fn reqwest(c: &mut Criterion) {
    let made = Made::with_headers();
    let make = requests(&made.request()).expect("it is a url");
    let mut rows = Rows::new(c.benchmark_group("errors, reqwest"), make);
    rows.row("bare", bare());
    rows.row("reqwest-middleware", service(&empty()));
    rows.row("reqwest-retry in it", service(&retrying()));
}

criterion_group!(benches, tower, reqwest);
criterion_main!(benches);
