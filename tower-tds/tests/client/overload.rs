//! Load beyond the quota over sockets, from callers with deadlines: what is sent is answered.
//!
//! The gate runs a few loads for some seconds, side by side, on a machine that may be busy. The bars
//! are asserted where you ask for a minute of each, which the table of BENCHMARKS.md has:
//! `OVERLOAD_SECONDS=60 cargo test --release -p tower-tds-tests --test client overload -- --nocapture`.

use std::{env, time::Duration};

use fastrand::Rng;
use tds_sim::{Config, Server};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tower_tds::{Client, Kind};

use crate::sim;

/// The loads of one response time and one deadline, as (calls a second, answered after, deadline).
const LOADS: [(f64, u64, u64); 4] = [
    (60.0, 80, 1),
    (110.0, 80, 2),
    (60.0, 600, 1),
    (110.0, 600, 2),
];

/// The results of a load.
#[derive(Debug, Default)]
struct Outcome {
    answered: usize,
    /// Rejected on arrival, with the time that took.
    rejections: Vec<Duration>,
}

enum End {
    Answered,
    Rejected,
    Late,
}

/// The length of a load that you ask for.
fn asked() -> Option<Duration> {
    let seconds = env::var("OVERLOAD_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().ok()?))
}

fn lasts() -> Duration {
    asked().unwrap_or(Duration::from_secs(8))
}

async fn server(takes: Duration) -> Server {
    let mut config = Config::default();
    config.faults.before_head = format!("{}ms", takes.as_millis()).parse().expect("a delay");
    sim::start(config).await
}

/// Makes calls at random times.
async fn load<F: Future<Output = End> + Send + 'static>(
    rate: f64,
    seed: u64,
    call: impl Fn() -> F,
) -> Outcome {
    let mut rng = Rng::with_seed(seed);
    let mut calls = JoinSet::new();
    let (begin, mut at) = (Instant::now(), Duration::ZERO);
    while at < lasts() {
        sleep_until(begin + at).await;
        let call = call();
        calls.spawn(async move {
            let begin = Instant::now();
            (call.await, begin.elapsed())
        });
        at += Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / rate);
    }
    let mut outcome = Outcome::default();
    for (end, took) in calls.join_all().await {
        match end {
            End::Answered => outcome.answered += 1,
            End::Rejected => outcome.rejections.push(took),
            End::Late => {}
        }
    }
    outcome
}

/// Counts the requests that calls without a deadline send, up to the last moment at which a call
/// with one could be sent.
async fn possible(rate: f64, takes: Duration, allowed: Duration) -> u64 {
    let server = server(takes).await;
    let client = sim::client(&server);
    let ends = Instant::now() + lasts() + allowed - takes;
    let calls = tokio::spawn(async move { load(rate, 7, || call(&client, None)).await });
    sleep_until(ends).await;
    calls.abort();
    server.sim().ledger().summary().data_calls
}

fn call(
    client: &Client,
    allowed: Option<Duration>,
) -> impl Future<Output = End> + Send + 'static + use<> {
    let mut call = client.get("/v1/live/bus");
    if let Some(allowed) = allowed {
        call = call.deadline(allowed);
    }
    async move {
        let read = match call.await {
            Ok(response) => response.bytes().await,
            Err(error) => Err(error),
        };
        match read {
            Ok(_) => End::Answered,
            Err(error) if error.kind() == Kind::LimitTimeout => End::Rejected,
            Err(_) => End::Late,
        }
    }
}

/// Asserts the bars, on what the server saw. A machine that stalls for half a second makes calls late
/// that were sent in time; without any estimate of the wait, most of those sent are late.
#[expect(clippy::print_stdout, reason = "a row of a table")]
fn judge(case: &str, possible: u64, mut outcome: Outcome, server: &Server) {
    let summary = server.sim().ledger().summary();
    let sent = summary.data_calls;
    let share = outcome.answered as f64 / sent as f64;
    outcome.rejections.sort();
    let p99 = outcome.rejections.len() * 99 / 100;
    let p99 = outcome.rejections.get(p99).copied().unwrap_or_default();
    println!(
        "| {case} | {sent} of {possible} | {share:.3} | {} | {p99:.1?} |",
        outcome.rejections.len(),
    );
    let (answered, used) = asked().map_or((0.75, 0.7), |_| (0.93, 0.9));
    assert!(share >= answered, "{case}: {share} of {sent}");
    assert!(
        sent as f64 >= used * possible as f64,
        "{case}: {sent} of {possible}"
    );
    assert!(
        outcome.rejections.len() > 10,
        "{case}: the load was too high"
    );
    let statuses: Vec<_> = summary.by_status.keys().copied().collect();
    assert_eq!(statuses, [200], "{case}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_under_overload_answers_what_it_sends() {
    let mut loads = JoinSet::new();
    for (rate, takes, allowed) in LOADS {
        loads.spawn(async move {
            let case = format!("Client, {rate}/s, {takes} ms, deadline {allowed} s");
            let [takes, allowed] = [Duration::from_millis(takes), Duration::from_secs(allowed)];
            let server = server(takes).await;
            let client = sim::client(&server);
            let outcome = load(rate, 7, || call(&client, Some(allowed)));
            let (outcome, possible) = tokio::join!(outcome, possible(rate, takes, allowed));
            judge(&case, possible, outcome, &server);
            // After the load the client is healthy at once.
            sleep(Duration::from_secs(2)).await;
            for _ in 0..20 {
                let answer = client.get("/v1/live/bus").deadline(allowed).await;
                answer.map(drop).expect("the load is over");
                sleep(Duration::from_millis(20)).await;
            }
        });
    }
    loads.join_all().await;
}
