//! Each layer, its peers and the whole stack over a service that does nothing.

use std::{
    convert::Infallible, hint::black_box, num::NonZeroU32, sync::Arc, thread, time::Duration,
};

use bytes::Bytes;
use governor::RateLimiter;
use http::Request;
use http_body_util::Full;
use tds_benches::{Cloned, Echo, call, token, tower_retry::ServerErrors, whole};
use tokio::time::Instant;
use tower::{
    limit::ConcurrencyLimitLayer,
    retry::RetryLayer as TowerRetryLayer,
    util::{MapErr, MapRequest},
};
use tower_http::auth::AddAuthorizationLayer;
use tower_layer::Layer;
use tower_service::Service;
use tower_tds_errors::{ClassifyLayer, Error, RetryLayer};
use tower_tds_limits::{Limiter, Limits, Quota, RequestLimitLayer, Rules};

type Body = Request<Full<Bytes>>;

/// Nanoseconds of a layer.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) one: f64,
    pub(crate) two: f64,
    pub(crate) cloned: f64,
}

/// Measures all rows, less the bare service.
pub(crate) fn measure() -> Vec<Row> {
    let runtime = token::runtime();
    let bare = row("bare", Echo::new());
    let fixed = AddAuthorizationLayer::bearer(&"x".repeat(1_400)).layer(Echo::new());
    let governor = Arc::new(RateLimiter::direct(governor::Quota::per_second(
        NonZeroU32::MAX,
    )));
    let governor = MapRequest::new(Echo::new(), move |request: Body| {
        let _allowed = black_box(governor.check());
        request
    });
    let wide = || {
        let wide = Quota::new(NonZeroU32::MAX, Duration::from_millis(1));
        Limits::new(wide.expect("a millisecond is an interval"))
    };
    let limit = |limits| RequestLimitLayer::new(Limiter::new(limits)).layer(Echo::new());
    let classified = || ClassifyLayer::new().layer(Echo::new());
    let typed = MapErr::new(Echo::new(), |never: Infallible| -> Error { match never {} });
    let rows = [
        row("tower-http: static header", fixed),
        row("BearerAuth", token::layer(&runtime).layer(Echo::new())),
        row(
            "tower: ConcurrencyLimit",
            ConcurrencyLimitLayer::new(60).layer(Echo::new()),
        ),
        row("governor: check", governor),
        row("RequestLimit", limit(wide())),
        row(
            "RequestLimit, window alone",
            limit(wide().rules(Rules::window())),
        ),
        row("Classify", classified()),
        row(
            "tower: Retry with a budget",
            TowerRetryLayer::new(ServerErrors::default()).layer(Echo::new()),
        ),
        row("Retry", RetryLayer::new().layer(typed)),
        row("Retry and Classify", RetryLayer::new().layer(classified())),
        row("the whole stack", whole::with_spans(&runtime)),
    ];
    rows.into_iter()
        .map(|row| Row {
            name: row.name,
            one: row.one - bare.one,
            two: row.two - bare.two,
            cloned: row.cloned - bare.cloned,
        })
        .collect()
}

fn row<S>(name: &'static str, service: S) -> Row
where
    S: Service<Body> + Clone + Send,
{
    let both = |service: &S| {
        let begin = Instant::now();
        thread::scope(|scope| {
            for service in [service.clone(), service.clone()] {
                scope.spawn(|| repeat(service));
            }
        });
        begin.elapsed()
    };
    Row {
        name,
        one: median(|| repeat(service.clone())),
        two: median(|| both(&service)),
        cloned: median(|| repeat(Cloned::new(service.clone()))),
    }
}

fn repeat<S: Service<Body>>(mut service: S) -> Duration {
    let begin = Instant::now();
    for _ in 0..CALLS {
        black_box(call(&mut service, black_box(token::request_with_headers())));
    }
    begin.elapsed()
}

/// The median of the rounds, in nanoseconds of a call.
fn median(mut round: impl FnMut() -> Duration) -> f64 {
    let mut rounds: Vec<_> = (0..ROUNDS).map(|_| round()).collect();
    rounds.sort_unstable();
    rounds[ROUNDS / 2].as_secs_f64() * 1e9 / f64::from(CALLS)
}

const CALLS: u32 = 20_000;
const ROUNDS: usize = 15;
