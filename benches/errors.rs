//! What meaning and retries cost a call that succeeds, beside `tower::retry` with its budget.
//!
//! `cargo bench -p tds-benches --bench errors`

use std::{future::Ready, hint::black_box, sync::Arc};

use bytes::Bytes;
use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use tds_benches::{Echo, call};
use tower::retry::{
    Policy, RetryLayer as TowerRetryLayer,
    budget::{Budget, TpsBudget},
};
use tower_layer::Layer;
use tower_service::Service;
use tower_tds_errors::{ClassifyLayer, GuardLayer, RetryLayer};

/// What a user of `tower::retry` writes: retry a 5xx, keep a clone of the request, pay a budget.
#[derive(Clone)]
struct ServerErrors {
    budget: Arc<TpsBudget>,
}

// === impl ServerErrors ===

impl<E> Policy<Request<Full<Bytes>>, Response<Full<Bytes>>, E> for ServerErrors {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Full<Bytes>>,
        result: &mut Result<Response<Full<Bytes>>, E>,
    ) -> Option<Ready<()>> {
        match result {
            Ok(response) if !response.status().is_server_error() => {
                self.budget.deposit();
                None
            }
            Ok(_) | Err(_) => self.budget.withdraw().then(|| std::future::ready(())),
        }
    }

    fn clone_request(&mut self, request: &Request<Full<Bytes>>) -> Option<Request<Full<Bytes>>> {
        Some(request.clone())
    }
}

/// A request with the headers that a program sets itself, its parts shared as those of one that
/// keeps them are; what making it costs is in every figure, the bare service's too.
struct Made {
    uri: Uri,
    headers: HeaderMap,
}

// === impl Made ===

impl Made {
    fn new(headers: &[(&'static str, &'static str)]) -> Self {
        let headers = headers.iter().filter_map(|(name, value)| {
            let value = HeaderValue::from_str(value).ok()?;
            Some((name.parse().ok()?, value))
        });
        Self {
            uri: Uri::from_static("https://data.example.org/v1/live/bus"),
            headers: headers.collect(),
        }
    }

    fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

fn one<S>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, made: &Made, mut service: S)
where
    S: Service<Request<Full<Bytes>>>,
{
    group.bench_function(name, |b| {
        b.iter(|| call(&mut service, black_box(made.request())));
    });
}

fn errors(c: &mut Criterion) {
    let three = [
        ("accept", "application/json"),
        ("content-encoding", "br,gzip"),
        ("x-trace", "0af7651916cd43dd8448eb211c80319c"),
    ];
    for (name, made) in [
        ("errors, no headers", Made::new(&[])),
        ("errors, three headers", Made::new(&three)),
    ] {
        let mut group = c.benchmark_group(name);
        let classified = || ClassifyLayer::new().layer(Echo::new());
        one(&mut group, "bare", &made, Echo::new());
        one(&mut group, "Classify", &made, classified());
        one(
            &mut group,
            "Guard",
            &made,
            GuardLayer::new().layer(Echo::new()),
        );
        let layer = RetryLayer::new();
        one(
            &mut group,
            "Retry and Classify",
            &made,
            layer.layer(classified()),
        );
        let layer = RetryLayer::new().unbudgeted();
        one(
            &mut group,
            "Retry without its budget, and Classify",
            &made,
            layer.layer(classified()),
        );
        let policy = ServerErrors {
            budget: Arc::new(TpsBudget::default()),
        };
        let tower = TowerRetryLayer::new(policy).layer(Echo::new());
        one(&mut group, "tower::retry with TpsBudget", &made, tower);
        group.finish();
    }
}

criterion_group!(benches, errors);
criterion_main!(benches);
