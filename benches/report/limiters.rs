//! 1,500 calls by a hundred tasks to the simulated service, through each limiter at the same setting.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use governor::RateLimiter;
use http::{HeaderValue, Request, StatusCode, header::AUTHORIZATION};
use http_body_util::{BodyExt, Empty};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use tds_sim::{Config, Rule, Server};
use tokio::{runtime::Builder, sync::Semaphore, task::JoinSet, time::Instant};
use tower::{ServiceBuilder, ServiceExt};
use tower_tds::{Client, Credentials};

type Http = legacy::Client<HttpConnector, Empty<Bytes>>;

/// Counts of one limiter: those of the simulator's ledger, and the lost calls.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) accepted: u64,
    pub(crate) rate: u64,
    pub(crate) connections: u64,
    pub(crate) lost: u32,
    pub(crate) seconds: f64,
}

/// Runs the limiters at the same time, each against a service of its own.
pub(crate) fn measure() -> Vec<Row> {
    let runtime = Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let (semaphore, tower, governor, ours) =
            tokio::join!(semaphore(), tower(), governed(), ours());
        vec![semaphore, tower, governor, ours]
    })
}

async fn semaphore() -> Row {
    let (server, http, _, bearer) = service().await;
    let places = Arc::new(Semaphore::new(60));
    run(
        "60 slots in flight alone",
        (server, bearer),
        move |request| {
            let (places, http) = (Arc::clone(&places), http.clone());
            async move {
                let _place = places.acquire().await;
                fetch(&http, request).await
            }
        },
    )
    .await
}

async fn tower() -> Row {
    let (server, http, _, bearer) = service().await;
    let stack = ServiceBuilder::new()
        .buffer(1_024)
        .concurrency_limit(60)
        .rate_limit(50, SECOND)
        .service(http);
    run(
        "tower: RateLimit, ConcurrencyLimit",
        (server, bearer),
        move |request| {
            let stack = stack.clone();
            async move {
                let response = stack.oneshot(request).await.ok()?;
                let status = response.status();
                response.into_body().collect().await.ok()?;
                (status == StatusCode::OK).then_some(())
            }
        },
    )
    .await
}

async fn governed() -> Row {
    let (server, http, _, bearer) = service().await;
    let fifty = NonZeroU32::MIN.saturating_add(49);
    let limiter = Arc::new(RateLimiter::direct(governor::Quota::per_second(fifty)));
    let places = Arc::new(Semaphore::new(60));
    run(
        "governor, 60 slots in flight",
        (server, bearer),
        move |request| {
            let (limiter, places, http) = (Arc::clone(&limiter), Arc::clone(&places), http.clone());
            async move {
                let _place = places.acquire().await;
                limiter.until_ready().await;
                fetch(&http, request).await
            }
        },
    )
    .await
}

async fn ours() -> Row {
    let (server, _, client, bearer) = service().await;
    run("tower-tds", (server, bearer), move |request| {
        let client = client.clone();
        async move {
            let response = client.get(request.uri().path()).await.ok()?;
            response.bytes().await.ok().map(drop)
        }
    })
    .await
}

/// A simulated service, two clients of it, and a token for the first of them.
async fn service() -> (Server, Http, Client, HeaderValue) {
    let mut config = Config::default();
    config.rule = Rule::SlidingCounter;
    config.faults.before_counting = "lognormal:5ms:100ms".parse().expect("a distribution");
    let server = Server::start(config).await.expect("a server");
    let id = Credentials::new(server.client_id(), server.client_secret()).expect("usable");
    let client = Client::builder(server.auth_url(), server.base_url(), id);
    let client = client.build().expect("loopback is allowed");
    let http = legacy::Client::builder(TokioExecutor::new()).build_http();
    let token = client.tokens().token().await.expect("a token");
    let bearer = token.header().clone();
    (server, http, client, bearer)
}

async fn fetch(http: &Http, request: Request<Empty<Bytes>>) -> Option<()> {
    let response = http.request(request).await.ok()?;
    let status = response.status();
    response.into_body().collect().await.ok()?;
    (status == StatusCode::OK).then_some(())
}

/// Calls through one limiter with a token that all calls share.
async fn run<F>(
    name: &'static str,
    (server, bearer): (Server, HeaderValue),
    call: impl Fn(Request<Empty<Bytes>>) -> F + Clone + Send + 'static,
) -> Row
where
    F: Future<Output = Option<()>> + Send,
{
    let next = Arc::new(AtomicU32::new(0));
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (call, next, bearer) = (call.clone(), Arc::clone(&next), bearer.clone());
        let base = server.base_url().to_owned();
        tasks.spawn(async move {
            let mut lost = 0_u32;
            // Relaxed: the counter orders nothing else.
            while next.fetch_add(1, Ordering::Relaxed) < CALLS {
                let request = Request::get(format!("{base}/v1/live/bus"))
                    .header(AUTHORIZATION, bearer.clone())
                    .body(Empty::new())
                    .expect("a request");
                lost += u32::from(call(request).await.is_none());
            }
            lost
        });
    }
    let lost = tasks.join_all().await.iter().sum();
    let seconds = begin.elapsed().as_secs_f64();
    let summary = server.ledger().summary();
    let count = |status| summary.by_status.get(&status).copied().unwrap_or_default();
    Row {
        name,
        accepted: count(200),
        rate: count(423),
        connections: count(416),
        lost,
        seconds,
    }
}

const CALLS: u32 = 1_500;
const TASKS: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);
