//! Failures in operation, and the status line, log at `info` and metric of each. The second table
//! of `TROUBLES.md` has the same rows.

use std::{thread, time::Duration};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use tds_sim::{Config, Quota};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};
use tower_tds::{Builder, Client, Credentials};
use tracing_subscriber::filter::LevelFilter;

use crate::client::{
    log::Log,
    raw::{Raw, answer},
    world::{Built as _, PATH, at_once, read, secure, start},
};

/// The rows of a table of `TROUBLES.md`, each with its columns.
pub(crate) fn rows(of: usize) -> impl Iterator<Item = Vec<&'static str>> {
    let section = include_str!("../../TROUBLES.md").split("\n## ").nth(of);
    let rows = section.expect("a table").lines();
    let rows = rows.filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| row.trim_matches(['|', ' ']).split(" | ").collect())
}

/// Whether `line` is `text`, where `…` stands for anything.
pub(crate) fn fits(line: &str, text: &str) -> bool {
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

/// The output of a client that makes some calls, as an operator sees it.
struct Seen {
    status: String,
    log: String,
    metrics: String,
}

/// `status` is the first status that fits `expected`, or the last one at the deadline of the calls.
async fn seen(builder: Builder, calls: usize, expected: &str) -> Seen {
    let (log, _listening) = Log::listen(LevelFilter::INFO);
    let recorder: PrometheusRecorder = PrometheusBuilder::new().build_recorder();
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let client = builder.built();
    let calls = (0..calls).map(|_| read(client.get(PATH).deadline(DEADLINE)));
    let under_way = tokio::spawn(at_once(calls.collect::<Vec<_>>()));
    let start = Instant::now();
    let mut status = client.status();
    while !fits(&status.to_string(), expected) && start.elapsed() < DEADLINE {
        sleep(Duration::from_millis(5)).await;
        status = client.status();
    }
    status.record();
    let before = recorder.handle().render();
    under_way.await.expect("no panic");
    client.status().record();
    Seen {
        status: status.to_string(),
        log: log.events(),
        metrics: before + &recorder.handle().render(),
    }
}

/// Long enough for every state on a machine that stalls, and shorter than a lost call holds its permit.
const DEADLINE: Duration = Duration::from_secs(8);

/// A server that is not there. The kernel never gives this port to a socket by itself.
const NOBODY: &str = "http://127.0.0.1:1";

/// Causes the failure `what`, and returns its output.
async fn looks(what: &str, expected: &str) -> Seen {
    let (mut config, mut calls) = (Config::default(), 3);
    let stalls = "stall:3600s".parse().expect("a fault");
    match what {
        "423" => config.rate = 0,
        "416" => config.connections = 0,
        "429, for hours" => {
            config.quota = Some(Quota::new(0, Duration::from_secs(7_200)));
            config.retry_after = true;
        }
        "response heads that never arrive" => {
            config.faults.before_head = "3600s".parse().expect("a delay");
            calls = 80;
        }
        "response bodies that never arrive" => config.faults.data.push(stalls),
        "all sockets are busy" => {
            config.faults.data.push(stalls);
            calls = 80;
        }
        "a stranger behind the same address" => calls = 30,
        _ => {}
    }
    let service = start(config).await;
    let (mut auth, mut base) = (service.auth_url().to_owned(), service.base_url().to_owned());
    let mut secret = service.client_secret();
    let (secured, mut stranger);
    match what {
        "the token endpoint is down" => auth = NOBODY.to_owned(),
        "the secret is wrong" => secret = "wrong",
        "a stranger behind the same address" => {
            let address = base.trim_start_matches("http://");
            stranger = Vec::new();
            while stranger.len() < 55 {
                stranger.push(TcpStream::connect(address).await.expect("it listens"));
            }
        }
        "a host without an address" => "https://data.invalid".clone_into(&mut base),
        "a certificate of an unknown issuer" => {
            secured = secure().await.0;
            secured.base_url().clone_into(&mut base);
        }
        "a proxy that strips the header" => {
            let refused = answer("401 Unauthorized", "no Authorization header found");
            base = Raw::saying(refused).await.url;
        }
        _ => {}
    }
    let credentials = Credentials::new(service.client_id(), secret).expect("it can be sent");
    seen(Client::builder(&auth, &base, credentials), calls, expected).await
}

/// Asserts that the output of a failure matches its row.
async fn check(row: Vec<&str>) {
    let [what, status, log, metric] = row[..] else {
        unreachable!("four columns: {row:?}");
    };
    let seen = looks(what, status).await;
    let has = fits(&seen.status, status);
    assert!(has, "{what}: {}\nis not: {status}", seen.status);
    let has = seen.log.contains(log);
    assert!(has, "{what}: {}\nhas not: {log}", seen.log);
    let metric = metric.trim_matches('`');
    let has = seen.metrics.lines().any(|line| fits(line, metric));
    assert!(has, "{what}: {}\nhas not: {metric}", seen.metrics);
    // The log has a few lines per failure, not one per call.
    let lines = seen.log.lines().count();
    assert!(lines <= 20, "{what}: {lines} lines\n{}", seen.log);
}

#[test]
fn each_failure_matches_its_row_in_the_troubles_table() {
    // One thread per row, because log and metrics are per thread.
    let threads: Vec<_> = rows(2)
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
