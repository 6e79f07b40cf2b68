//! Spans and metrics of a call, over the simulator in this process and under paused time.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use metrics_exporter_prometheus::PrometheusBuilder;
use tds_sim::{Config, Sim};
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt as _;
use tower_tds::{Error, Limits, Quota, layers::errors::DeadlineAt};
use tracing_subscriber::filter::LevelFilter;

use crate::client::{
    log::Log,
    world::{Built as _, PATH, Stack, builder, count, faults, get, read, read_many, stack, start},
};

/// The simulator, and the whole layer for it within these limits.
fn setup(limits: Limits) -> (Sim, Stack) {
    let sim = Sim::new(Config::default());
    let stack = stack(&sim, limits);
    (sim, stack)
}

/// A call to its body's end.
async fn send(stack: &Stack, request: Request<Full<Bytes>>) -> Result<(), Error> {
    let response = stack.clone().oneshot(request).await?;
    response.into_body().collect().await.expect("a whole body");
    Ok(())
}

async fn call(stack: &Stack) -> Result<(), Error> {
    send(stack, get(PATH)).await
}

/// A call that has a second.
async fn call_for_a_second(stack: &Stack) -> Result<(), Error> {
    let ends = Instant::now() + Duration::from_secs(1);
    let mut request = get(PATH);
    let deadline = DeadlineAt::new(ends.into_std());
    request.extensions_mut().insert(deadline);
    send(stack, request).await
}

/// One permit in this many seconds.
fn scarce(seconds: u64) -> Limits {
    let quota = Quota::new(count(1), Duration::from_secs(seconds));
    Limits::new(quota.expect("it is an interval"))
}

/// The spans of calls and of attempts, in the order of their ends.
fn spans(log: &Log) -> [Vec<String>; 2] {
    let text = log.text();
    let is_end = |line: &&str| line.contains("close") && line.contains("tds.call{");
    let ends = text.lines().filter(is_end).map(str::to_owned);
    let (attempts, calls) = ends.partition(|line| line.contains("tds.attempt{"));
    [calls, attempts]
}

/// The fields of a wait.
fn wait(cause: &str, seconds: &str) -> String {
    format!(" tds.wait.cause=\"{cause}\" tds.wait.seconds={seconds}")
}

#[tokio::test(start_paused = true)]
async fn attempt_span_records_a_wait_that_is_over_or_abandoned() {
    let (log, _spans) = Log::listen(LevelFilter::INFO);
    let (sim, stack) = setup(scarce(20));
    sim.set_faults(faults(&["token=slow:3s"]));
    // Too late for the first call, which ends, and late for the second.
    let late = call_for_a_second(&stack).await;
    late.expect_err("there is no token");
    call(&stack).await.expect("data");
    // One call ends by its deadline, and one by its caller. Nothing is known of the service by
    // then, so neither is rejected on arrival.
    sleep(Duration::from_secs(11)).await;
    let late = call_for_a_second(&stack).await;
    late.expect_err("there is no permit");
    let hurried = timeout(Duration::from_millis(500), call(&stack));
    hurried.await.expect_err("there is no permit");
    let start = Instant::now();
    call(&stack).await.expect("data");
    let took = start.elapsed().as_secs_f64();
    assert!(took >= 7.5, "{took}");
    let [calls, attempts] = spans(&log);
    for (n, error) in [(0, "timeout"), (2, "timeout"), (3, "cancelled")] {
        let call = &calls[n];
        assert!(call.contains(&format!("error.type=\"{error}\"")), "{call}");
    }
    let waits = [
        wait("readiness", "1.0"),
        wait("readiness", "2.0"),
        wait("rate", "1.0"),
        wait("rate", "0.5"),
        wait("rate", &format!("{took:?}")),
    ];
    assert_eq!((calls.len(), attempts.len()), (5, 5), "{attempts:?}");
    for (attempt, waited) in attempts.iter().zip(waits) {
        assert!(attempt.contains(&waited), "{waited}: {attempt}");
    }
}

#[tokio::test(start_paused = true)]
async fn spans_use_opentelemetry_names_and_omit_the_query() {
    let (log, _spans) = Log::listen(LevelFilter::INFO);
    let (sim, stack) = setup(Limits::default());
    sim.set_faults(faults(&["data=503@every:2"]));
    call(&stack).await.expect("data");
    let with_query = get("/v1/live/bus?key=CANARY");
    send(&stack, with_query).await.expect("data");
    let text = log.text();
    assert!(!text.contains("CANARY"), "{text}");
    let ends = text.lines().filter(|line| line.contains("close"));
    let [_, _, first, second, whole] = *ends.collect::<Vec<_>>() else {
        panic!("two attempts and their calls: {text}");
    };
    let asked =
        "http.request.method=GET server.address=\"data.example.org\" url.path=\"/v1/live/bus\"";
    let same = |line: &str| line.replace(" http.request.resend_count=1", "");
    assert!(same(whole).contains(asked), "{whole}");
    assert!(whole.contains("tds.call{otel.kind=\"client\""), "{whole}");
    assert!(whole.contains("http.response.status_code=200"), "{whole}");
    assert!(whole.contains("http.request.resend_count=1"), "{whole}");
    for (attempt, status, resent) in [(first, 503, false), (second, 200, true)] {
        // Inside the span of the call.
        let (call, attempt) = attempt.split_once(":tds.attempt{").expect(attempt);
        assert!(call.contains("tds.call{"), "{call}");
        assert!(same(attempt).contains(asked), "{attempt}");
        let status = format!("http.response.status_code={status}");
        assert!(attempt.contains(&status), "{attempt}");
        assert_eq!(attempt.contains("resend_count=1"), resent, "{attempt}");
    }
    assert!(first.contains("error.type=\"unavailable\""), "{first}");
    assert!(
        !second.contains("tds.wait"),
        "it waits for nothing: {second}"
    );
}

#[tokio::test(start_paused = true)]
async fn quiet_day_logs_at_most_five_lines() {
    let (log, _ours) = Log::listen(LevelFilter::INFO);
    let (_sim, stack) = setup(Limits::default());
    for _minute in 0..24 * 60 {
        call(&stack).await.expect("data");
        sleep(Duration::from_secs(60)).await;
    }
    let text = log.events();
    assert!(text.contains("token renewed"), "{text}");
    assert!(text.lines().count() <= 5, "{text}");
}

/// The table of the documentation: a metric's name and its kind.
fn metrics_of_the_table() -> BTreeMap<String, String> {
    let rows = include_str!("../../src/client/status.rs").split("/// | ");
    let rows = rows.filter(|row| row.starts_with("`tds_"));
    rows.flat_map(|row| {
        let (names, rest) = row.split_once(" | ").expect("a row");
        let kind = rest.split(" | ").next().expect("a kind").to_owned();
        let names = names.replace('`', "");
        let names = names.split(", ").map(str::to_owned);
        names
            .map(move |name| (name, kind.clone()))
            .collect::<Vec<_>>()
    })
    .collect()
}

#[tokio::test]
async fn metrics_match_their_table_by_client_without_paths_in_labels() {
    let (log, _spans) = Log::listen(LevelFilter::INFO);
    let recorder = PrometheusBuilder::new()
        .set_buckets(&[1.0])
        .expect("one")
        .build_recorder();
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let server = start(Config::default()).await;
    let client = builder(&server).name("day").built();
    // From then on, a call beyond the burst waits for the rate alone.
    client.tokens().ready().await.expect("a token");
    for body in read_many(&client, 60).await {
        body.expect("a whole body");
    }
    let none = client.get("/no/such/thing").await;
    none.map(drop).expect_err("nothing");
    client.status().record();
    let other = builder(&server).name("night").built();
    read(other.get(PATH)).await.expect("a whole body");
    other.status().record();
    let text = recorder.handle().render();
    for line in [
        r#"tds_calls_total{kind="success",client="day"} 60"#,
        r#"tds_calls_total{kind="success",client="night"} 1"#,
        r#"tds_attempts_total{kind="success",client="night"} 1"#,
        // Including the token request.
        r#"tds_granted_total{client="day"} 62"#,
        r#"tds_granted_total{client="night"} 2"#,
        r#"tds_permits_quota{client="day"} 50"#,
    ] {
        assert!(text.lines().any(|each| each == line), "{line}\n{text}");
    }
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let types = types.filter_map(|line| line.split_once(' '));
    let shown: BTreeMap<_, _> = types
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    assert_eq!(shown, metrics_of_the_table());
    let waits = r#"tds_wait_seconds_bucket{cause="rate",le="1"} "#;
    assert!(text.lines().any(|line| line.starts_with(waits)), "{text}");
    let [calls, _] = spans(&log);
    let named = calls.iter().filter(|it| it.contains("tds.client=\"day\""));
    assert_eq!(named.count(), 61);
    let labels = text
        .lines()
        .filter_map(|line| Some(line.split_once('{')?.1.rsplit_once('}')?.0));
    for label in labels.flat_map(|labels| labels.split(',')) {
        let (key, value) = label.split_once('=').expect(label);
        assert!(["kind", "cause", "client", "le"].contains(&key), "{label}");
        assert!(!value.contains(['/', '.']), "{label}: no path or address");
    }
}
