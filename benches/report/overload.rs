//! A minute of more calls than the service allows, each with a deadline, through each limiter.

use std::{env, num::NonZeroU32, sync::Arc, time::Duration};

use bytes::Bytes;
use fastrand::Rng;
use governor::RateLimiter;
use http::{HeaderValue, Request, StatusCode, header::AUTHORIZATION};
use http_body_util::{BodyExt, Empty};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use tds_sim::{Config, Rule, Server};
use tokio::{
    runtime::Builder,
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};
use tower_tds::{Client, Credentials};

/// Results of one limiter's calls, from the ledger of the service and from their callers.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) load: Load,
    pub(crate) sent: u64,
    /// Requests that the service refused.
    pub(crate) refused: u64,
    /// Calls whose callers had the data by their deadline.
    pub(crate) answered: usize,
}

/// A load, and how long its service takes.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// Calls a second, at random times.
    pub(crate) rate: u32,
    /// How long the service takes.
    pub(crate) takes: Duration,
    pub(crate) deadline: Duration,
}

/// Runs the limiters, and the three loads of a service, at the same time, each against a service of
/// its own.
pub(crate) fn measure() -> Vec<Row> {
    let runtime = Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut rows = Vec::new();
        for (takes, deadline) in [(80, 1), (80, 2), (600, 1), (600, 2)] {
            let load = |rate| Load {
                rate,
                takes: Duration::from_millis(takes),
                deadline: Duration::from_secs(deadline),
            };
            let loads = tokio::join!(each(load(50)), each(load(60)), each(load(110)));
            rows.extend([loads.0, loads.1, loads.2].concat());
        }
        rows
    })
}

async fn each(load: Load) -> [Row; 3] {
    tokio::join!(ours(load), governed(load), tower(load)).into()
}

async fn ours(load: Load) -> Row {
    let (server, client, bearer) = service(load).await;
    run("tower-tds", load, (server, bearer), move |request| {
        let call = client.get(request.uri().path()).deadline(load.deadline);
        async move { call.await.ok()?.bytes().await.ok().map(drop) }
    })
    .await
}

async fn governed(load: Load) -> Row {
    let (server, _, bearer) = service(load).await;
    let fifty = NonZeroU32::MIN.saturating_add(49);
    let limiter = Arc::new(RateLimiter::direct(governor::Quota::per_second(fifty)));
    let http = http();
    run("governor", load, (server, bearer), move |request| {
        let (limiter, http) = (Arc::clone(&limiter), http.clone());
        async move {
            let call = async {
                limiter.until_ready().await;
                fetch(http, request).await
            };
            timeout(load.deadline, call).await.ok().flatten()
        }
    })
    .await
}

async fn tower(load: Load) -> Row {
    let (server, _, bearer) = service(load).await;
    let stack = ServiceBuilder::new()
        .load_shed()
        .buffer(64)
        .rate_limit(50, Duration::from_secs(1))
        .service(http());
    run(
        "tower: load_shed, buffer(64), rate_limit",
        load,
        (server, bearer),
        move |request| {
            let stack = stack.clone();
            async move {
                timeout(load.deadline, fetch(stack, request))
                    .await
                    .ok()
                    .flatten()
            }
        },
    )
    .await
}

fn http() -> legacy::Client<HttpConnector, Empty<Bytes>> {
    legacy::Client::builder(TokioExecutor::new()).build_http()
}

/// A simulated service that counts by a sliding counter, a client of it, and a token for others.
async fn service(load: Load) -> (Server, Client, HeaderValue) {
    let mut config = Config::default();
    config.rule = Rule::SlidingCounter;
    let takes = format!("{}ms", load.takes.as_millis());
    config.faults.before_head = takes.parse().expect("a delay");
    let server = Server::start(config).await.expect("a server");
    let id = Credentials::new(server.client_id(), server.client_secret()).expect("usable");
    let client = Client::builder(server.auth_url(), server.base_url(), id);
    let client = client.build().expect("loopback is allowed");
    let token = client.tokens().token().await.expect("a token");
    let bearer = token.header().clone();
    (server, client, bearer)
}

async fn fetch<S, B>(service: S, request: Request<Empty<Bytes>>) -> Option<()>
where
    S: Service<Request<Empty<Bytes>>, Response = http::Response<B>, Error: Into<BoxError>>,
    B: http_body::Body,
{
    let response = service.oneshot(request).await.ok()?;
    let status = response.status();
    response.into_body().collect().await.ok()?;
    (status == StatusCode::OK).then_some(())
}

/// Makes calls at random times, with a token that all of them share.
async fn run<F>(
    name: &'static str,
    load: Load,
    (server, bearer): (Server, HeaderValue),
    call: impl Fn(Request<Empty<Bytes>>) -> F,
) -> Row
where
    F: Future<Output = Option<()>> + Send + 'static,
{
    let mut rng = Rng::with_seed(7);
    let mut calls = JoinSet::new();
    let url = format!("{}/v1/live/bus", server.base_url());
    let (begin, mut at) = (Instant::now(), Duration::ZERO);
    while at < lasts() {
        sleep_until(begin + at).await;
        let request = Request::get(&url).header(AUTHORIZATION, bearer.clone());
        calls.spawn(call(request.body(Empty::new()).expect("a request")));
        at += Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / f64::from(load.rate));
    }
    let answered = calls.join_all().await.iter().flatten().count();
    let summary = server.ledger().summary();
    let count = |status| summary.by_status.get(&status).copied().unwrap_or_default();
    Row {
        name,
        load,
        sent: summary.data_calls,
        refused: count(423) + count(416),
        answered,
    }
}

/// How long a run takes: a minute, or `OVERLOAD_SECONDS`.
fn lasts() -> Duration {
    let seconds = env::var("OVERLOAD_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(60))
}
