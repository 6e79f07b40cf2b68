//! Access log and metrics of users: one line and one count for each request.

use std::{
    collections::HashMap,
    convert::Infallible,
    io::Write as _,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::response::Response;
use clap::Args;
use http::{HeaderValue, Request, header::X_CONTENT_TYPE_OPTIONS};
use http_body::Body as _;
use metrics::{Counter, Gauge, Histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use serde_json::json;
use time::OffsetDateTime;
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tower::{Service, ServiceExt as _};

use crate::lock::lock;

/// Form of the access log.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Access {
    /// Print a line of JSON for each request of a user
    #[arg(long)]
    access_log: bool,
    /// Include queries in the access log
    #[arg(long, requires = "access_log")]
    log_queries: bool,
}

/// Where a response came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Served {
    /// `hit`, `stale`, `miss` or `join`, or `none` for a path that is no resource.
    pub(crate) cache: &'static str,
    /// How long the service took, if this request waited for it.
    pub(crate) upstream: Option<Duration>,
}

/// Access log, and its lines on their way to the standard output.
#[derive(Debug)]
pub(crate) struct Log {
    access: Access,
    lines: mpsc::Sender<String>,
    waiting: Gauge,
    seconds: Histogram,
    /// Counters by status and origin. The lock is never held over an await.
    requests: Mutex<HashMap<(u16, &'static str), Counter>>,
}

/// Counts a request as waiting until it is dropped.
struct Waits(Gauge);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

// === impl Log ===

impl Log {
    /// Starts the task that prints. It ends with the log.
    pub(crate) fn start(access: Access) -> (Arc<Self>, JoinHandle<()>) {
        // If the reader stalls, lines are lost and no user waits.
        let (lines, mut waiting) = mpsc::channel::<String>(1_024);
        let printed = tokio::task::spawn_blocking(move || {
            let mut out = std::io::stdout();
            while let Some(line) = waiting.blocking_recv() {
                drop(out.write_all(line.as_bytes()));
            }
        });
        // Metrics are registered once, because a look into the registry costs as much as a response
        // of the cache.
        let log = Arc::new(Self {
            access,
            lines,
            waiting: metrics::gauge!("tds_users_waiting"),
            seconds: metrics::histogram!("tds_users_seconds"),
            requests: Mutex::default(),
        });
        (log, printed)
    }
}

/// Installs the recorder of all metrics, with their descriptions.
pub(crate) fn recorder() -> Result<PrometheusHandle, BuildError> {
    let seconds = |name: &str| Matcher::Full(name.to_owned());
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(seconds("tds_users_seconds"), &BUCKETS)?
        .set_buckets_for_metric(seconds("tds_call_seconds"), &BUCKETS)?
        .set_buckets_for_metric(seconds("tds_wait_seconds"), &BUCKETS)?
        .install_recorder()?;
    for (name, help) in DESCRIPTIONS.lines().filter_map(|line| line.split_once(' ')) {
        // All are described as gauges: the exporter learns the type by the first value.
        metrics::describe_gauge!(name, help);
    }
    // The exporter keeps each time until it is added up. If nothing reads the metrics, 36,000
    // requests a second would thus take a gigabyte an hour.
    let kept = recorder.clone();
    tokio::spawn(async move {
        loop {
            sleep(UPKEEP).await;
            kept.run_upkeep();
        }
    });
    Ok(recorder)
}

/// Answers a request by `service`, and records both.
pub(crate) async fn record<S, B>(
    log: Arc<Log>,
    user: SocketAddr,
    request: Request<B>,
    service: S,
) -> Response
where
    S: Service<Request<B>, Response = Response, Error = Infallible>,
{
    // Health checks and Prometheus are no users.
    let is_user = !OWN.contains(&request.uri().path());
    let begun = Instant::now();
    let is_logged = is_user && log.access.access_log;
    let line = is_logged.then(|| (request.method().clone(), request.uri().clone()));
    // Dropped with this future if the user disconnects.
    let waits = is_user.then(|| {
        log.waiting.increment(1.0);
        Waits(log.waiting.clone())
    });
    let Ok(mut response) = service.oneshot(request).await;
    let sniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, sniff);
    drop(waits);
    let served = response.extensions().get().copied();
    let Served { cache, upstream } = served.unwrap_or(Served {
        cache: "none",
        upstream: None,
    });
    let (status, took) = (response.status().as_u16(), begun.elapsed());
    if is_user {
        let mut requests = lock(&log.requests);
        let count = requests.entry((status, cache)).or_insert_with(|| {
            metrics::counter!("tds_users_requests_total", "status" => status.to_string(), "cache" => cache)
        });
        count.increment(1);
        drop(requests);
        log.seconds.record(took);
    }
    let Some((method, uri)) = line else {
        return response;
    };
    let query = uri.query().filter(|_| log.access.log_queries);
    let target = query.map_or_else(String::new, |query| format!("?{query}"));
    let target = uri.path().to_owned() + &target;
    let bytes = response.body().size_hint().exact();
    let (ms, upstream) = (took.as_millis(), upstream.map(|took| took.as_millis()));
    #[expect(
        clippy::disallowed_methods,
        reason = "a time for people and other programs"
    )]
    let now = OffsetDateTime::from(std::time::SystemTime::now());
    let line = json!({
        "time": now.unix_timestamp(), "user": user.ip(), "method": method.as_str(), "target": target,
        "status": status, "cache": cache, "bytes": bytes, "ms": ms, "upstream_ms": upstream,
    });
    drop(log.lines.try_send(format!("{line}\n")));
    response
}

/// One line for each metric of the family: its name and what it counts.
const DESCRIPTIONS: &str = include_str!("metrics.txt");

/// How often the times of requests are added up.
const UPKEEP: Duration = Duration::from_secs(1);

/// Bounds in seconds, from a response of the cache to the longest call.
const BUCKETS: [f64; 12] = [
    0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0,
];

/// Paths of this server itself.
pub(crate) const OWN: [&str; 4] = ["/healthz", "/readyz", "/livez", "/metrics"];
