//! Classification and retries of a call that succeeds, compared with `tower::retry` and its budget.
//!
//! `cargo bench -p tds-benches --bench errors`
//!
//! There are rows for each layer alone, and for Retry without replay and without budget.

use std::convert::Infallible;

use criterion::{Criterion, criterion_group, criterion_main};
use tds_benches::{Echo, made::Made, rows::Rows, tower_retry::ServerErrors};
use tower::{retry::RetryLayer as TowerRetryLayer, util::MapErr};
use tower_layer::Layer;
use tower_tds_errors::{ClassifyLayer, Error, RetryLayer};

fn errors(c: &mut Criterion) {
    for (name, made) in [
        ("errors, no headers", Made::plain()),
        ("errors, three headers", Made::with_headers()),
    ] {
        let mut rows = Rows::new(c.benchmark_group(name), || made.request());
        let classified = || ClassifyLayer::new().layer(Echo::new());
        rows.row("bare", Echo::new());
        rows.row("Classify", classified());

        // This is Retry alone, over a service that already returns the typed error.
        let typed = MapErr::new(Echo::new(), |never: Infallible| -> Error { match never {} });
        let layer = RetryLayer::new();
        rows.row("Retry", layer.layer(typed));
        let layer = RetryLayer::new();
        rows.row("Retry and Classify", layer.layer(classified()));
        let layer = RetryLayer::new().replay(|_: &http_body_util::Full<bytes::Bytes>| None);
        rows.row(
            "Retry that replays nothing, and Classify",
            layer.layer(classified()),
        );
        let layer = RetryLayer::new().budget(None);
        rows.row(
            "Retry without its budget, and Classify",
            layer.layer(classified()),
        );
        let layer = TowerRetryLayer::new(ServerErrors::default());
        rows.row("tower::retry with TpsBudget", layer.layer(Echo::new()));
    }
}

criterion_group!(benches, errors);
criterion_main!(benches);
