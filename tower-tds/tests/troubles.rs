//! Troubles, and how each looks from outside: one line of status, the log at `info`, a metric. The table in
//! `TROUBLES.md` says the same.
#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

#[path = "support/log.rs"]
mod log;
#[path = "support/server.rs"]
#[expect(dead_code, reason = "the other tests ask it for more")]
mod server;

use std::{thread, time::Duration};

use log::Log;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use server::Server;
use tds_sim::{Config, Server as Sim, Tls};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep},
};
use tower_tds::{Builder, Client, Credentials};
use tracing_subscriber::filter::LevelFilter;

const PATH: &str = "/v1/live/bus";

/// What an operator sees of a client that makes some calls.
struct Seen {
    status: String,
    log: String,
    metrics: String,
}

/// Its status is that which fits `expected`, if one does within three seconds.
async fn seen(builder: Builder, calls: usize, expected: &str) -> Seen {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::INFO)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(move || writer.clone())
        .finish();
    let _log = tracing::subscriber::set_default(subscriber);
    let recorder: PrometheusRecorder = PrometheusBuilder::new().build_recorder();
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let client = builder
        .loopback_http()
        .build()
        .expect("loopback is let through");
    let mut under_way = JoinSet::new();
    for _ in 0..calls {
        let call = client.get(PATH).deadline(Duration::from_secs(3));
        under_way.spawn(async move {
            // A body holds its place until it is read.
            match call.await {
                Ok(response) => response.bytes().await.map(drop),
                Err(error) => Err(error),
            }
        });
    }
    let start = Instant::now();
    let mut status = client.status();
    while !fits(&status.to_string(), expected) && start.elapsed() < Duration::from_secs(3) {
        sleep(Duration::from_millis(20)).await;
        status = client.status();
    }
    status.record();
    let before = recorder.handle().render();
    let left = Duration::from_millis(3_500).saturating_sub(start.elapsed());
    sleep(left).await;
    client.status().record();
    Seen {
        status: status.to_string(),
        log: log.text(),
        metrics: before + &recorder.handle().render(),
    }
}

fn at(auth: &str, base: &str) -> Builder {
    let credentials = Credentials::new("id", "s3cr3t").expect("it can be sent");
    Client::builder(auth, base, credentials)
}

/// A service whose answer to each data call is this.
async fn answers(text: &str) -> Builder {
    let server = Server::start(text.as_bytes()).await;
    at(&server.url(), &server.url())
}

/// Somebody who takes connections, and says nothing.
async fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            kept.push(socket);
        }
    });
    format!("http://{address}")
}

/// An address of this machine where nobody listens.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let address = listener.and_then(|listener| listener.local_addr());
    format!("http://{}", address.expect("a port"))
}

/// A stranger has nearly all sockets of the address.
async fn behind_a_stranger() -> (Builder, Vec<TcpStream>) {
    let service = Sim::start(Config::default()).await.expect("a free port");
    let address = service.base_url().replace("http://", "");
    let mut held = Vec::new();
    while held.len() < 55 {
        held.push(TcpStream::connect(&address).await.expect("it listens"));
    }
    let credentials = Credentials::new(service.client_id(), service.client_secret());
    let credentials = credentials.expect("the simulator's are usable");
    let builder = Client::builder(service.auth_url(), service.base_url(), credentials);
    // It lives as long as the runtime of this test.
    tokio::spawn(async move {
        let _service = service;
        std::future::pending::<()>().await;
    });
    (builder, held)
}

/// What each trouble makes to be seen.
async fn looks(what: &str, expected: &str) -> Seen {
    let status = |line: &str| format!("HTTP/1.1 {line}\r\ncontent-length: 0\r\n\r\n");
    let well = Server::start(status("200 OK").as_bytes()).await.url();
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
    match what {
        "nothing" => seen(at(&well, &well), 3, expected).await,
        "the token endpoint is down" => seen(at(&nobody().await, &well), 3, expected).await,
        "the secret is wrong" => {
            let service = Sim::start(Config::default()).await.expect("a free port");
            let wrong = Credentials::new(service.client_id(), "wrong").expect("it can be sent");
            let builder = Client::builder(service.auth_url(), service.base_url(), wrong);
            seen(builder, 3, expected).await
        }
        "423" => seen(answers(&status("423 Locked")).await, 3, expected).await,
        "416" => {
            seen(
                answers(&status("416 Range Not Satisfiable")).await,
                3,
                expected,
            )
            .await
        }
        "429, for hours" => {
            let line = "429 Too Many Requests\r\nretry-after: 7200";
            seen(answers(&status(line)).await, 3, expected).await
        }
        "heads that do not come" => seen(at(&well, &silent().await), 80, expected).await,
        "bodies that do not come" => seen(answers(half).await, 3, expected).await,
        "all sockets are busy" => seen(answers(half).await, 80, expected).await,
        "a stranger behind the same address" => {
            let (builder, held) = behind_a_stranger().await;
            let seen = seen(builder, 30, expected).await;
            drop(held);
            seen
        }
        "a host without an address" => seen(at(&well, "https://data.invalid"), 3, expected).await,
        "a certificate that nobody vouches for" => {
            let mut config = Config::default();
            config.tls = Tls::On;
            let service = Sim::start(config).await.expect("a free port");
            seen(at(&well, service.base_url()), 3, expected).await
        }
        "a proxy that strips the header" => {
            let text = "no Authorization header found";
            let line = format!("401 Unauthorized\r\ncontent-length: {}", text.len());
            let answer = format!("HTTP/1.1 {line}\r\n\r\n{text}");
            seen(answers(&answer).await, 3, expected).await
        }
        _ => unreachable!("no trouble: {what}"),
    }
}

/// Whether `line` is `text`, where `…` stands for anything.
fn fits(line: &str, text: &str) -> bool {
    let mut pieces = text.split('…');
    let Some(mut rest) = pieces.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    for piece in pieces {
        let Some((_, after)) = rest.split_once(piece) else {
            return false;
        };
        rest = if piece.is_empty() { "" } else { after };
    }
    rest.is_empty()
}

/// Whether a trouble looks as its row says.
async fn check(row: &str) {
    let columns: Vec<_> = row.trim_matches(['|', ' ']).split(" | ").collect();
    let [what, status, log, metric] = columns[..] else {
        unreachable!("four columns: {row}");
    };
    let seen = looks(what, status).await;
    let has = fits(&seen.status, status);
    assert!(has, "{what}: {}\nis not: {status}", seen.status);
    let has = seen.log.contains(log);
    assert!(has, "{what}: {}\nhas not: {log}", seen.log);
    let metric = metric.trim_matches('`');
    let has = seen.metrics.lines().any(|line| fits(line, metric));
    assert!(has, "{what}: {}\nhas not: {metric}", seen.metrics);
    // It is an evening's log, and not a call's.
    let lines = seen.log.lines().count();
    assert!(lines <= 20, "{what}: {lines} lines\n{}", seen.log);
}

#[test]
fn each_trouble_looks_as_its_table_says() {
    let table = include_str!("../TROUBLES.md").split("\n## ").nth(2);
    let rows = table.expect("at night").lines();
    let rows = rows.filter(|line| line.starts_with("| ") && !line.starts_with("| what is wrong"));
    // Each has log and metrics to itself by its thread, and they do not wait for each other.
    let threads: Vec<_> = rows
        .map(|row| {
            thread::spawn(move || {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = runtime.enable_all().build().expect("a runtime");
                runtime.block_on(check(row));
            })
        })
        .collect();
    assert_eq!(threads.len(), 13);
    for thread in threads {
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn the_dashboard_draws_metrics_that_there_are() {
    let dashboard = include_str!("../grafana.json");
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(dashboard);
    assert!(parsed.is_ok_and(|dashboard| dashboard["panels"].is_array()));
    let names = dashboard.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names: Vec<_> = names.filter(|name| name.starts_with("tds_")).collect();
    assert!(names.len() >= 15, "{names:?}");
    // The table of `Status::record` has all of them.
    let table = include_str!("../src/metrics.rs");
    for name in names {
        let parts = ["_sum", "_count", "_bucket"];
        let name = parts
            .iter()
            .find_map(|part| name.strip_suffix(part))
            .unwrap_or(name);
        assert!(table.contains(&format!("`{name}`")), "{name}");
    }
}
