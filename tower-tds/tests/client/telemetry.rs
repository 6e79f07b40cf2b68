//! Spans and metrics of a call, over the simulator in this process and under paused time.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use metrics_exporter_prometheus::PrometheusBuilder;
use tds_sim::{Config, Faults, Scripted, Sim, TokenFault, When};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tower_tds::{
    Credentials, Error, Limiter, Limits, Quota, TdsLayer,
    layers::{
        errors::DeadlineAt,
        token::{Origin, TokenEndpoint, TokenSource},
    },
};
use tracing::{Level, subscriber::DefaultGuard};
use tracing_subscriber::fmt::format::FmtSpan;

use crate::client::log::{Log, listen};
use crate::client::sim;

const URL: &str = "http://127.0.0.1:1";

/// The simulator, and the whole layer for it within these limits.
fn setup(limits: Limits) -> (Sim, TdsLayer) {
    let sim = Sim::new(Config::default());
    let credentials = Credentials::new(sim.client_id(), sim.client_secret());
    let endpoint = TokenEndpoint::keycloak(URL, "ServiceConnect");
    let tokens = TokenSource::builder(endpoint.expect("loopback"), credentials.expect("usable"));
    let tokens = tokens.build::<_, Full<Bytes>, _>(sim.clone());
    let origin = Origin::from_uri(&http::Uri::from_static(URL)).expect("loopback");
    (sim, TdsLayer::new(tokens, [origin], Limiter::new(limits)))
}

/// A call to its body's end, made of a request that `with` has changed.
async fn call(
    sim: &Sim,
    layer: &TdsLayer,
    with: impl FnOnce(&mut Request<Full<Bytes>>),
) -> Result<(), Error> {
    let service = ServiceBuilder::new()
        .layer(layer.clone())
        .map_future(Box::pin)
        .service(sim.clone());
    let request = Request::get(format!("{URL}/v1/live/bus")).body(Full::default());
    let mut request = request.expect("a request");
    with(&mut request);
    let response = service.oneshot(request).await?;
    let body = response.into_body().collect().await;
    body.map(drop).map_err(|error| BoxError::from(error).into())
}

/// A permit in each two seconds.
fn scarce() -> Limits {
    let quota = Quota::new(NonZeroU32::MIN, Duration::from_secs(2));
    Limits::new(quota.expect("two seconds are an interval"))
}

/// Notes each span at its end, with its fields.
fn spans() -> (Log, DefaultGuard) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::INFO)
        .with_ansi(false)
        .without_time()
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .finish();
    (log, listen(subscriber))
}

/// The calls' spans, in the order of their ends.
fn calls(log: &Log) -> Vec<String> {
    let text = log.text();
    let ends = text.lines().filter(|line| line.contains("close"));
    let calls = ends.filter(|line| line.contains("tds.call{") && !line.contains("tds.attempt{"));
    calls.map(str::to_owned).collect()
}

/// The attempts' spans, in the order of their ends.
fn attempts(log: &Log) -> Vec<String> {
    let text = log.text();
    let ends = text.lines().filter(|line| line.contains("close"));
    let attempts = ends.filter(|line| line.contains("tds.attempt{"));
    attempts.map(str::to_owned).collect()
}

/// The fields of a wait.
fn wait(cause: &str, seconds: &str) -> String {
    format!(" tds.wait.cause=\"{cause}\" tds.wait.seconds={seconds}")
}

#[tokio::test(start_paused = true)]
async fn attempt_span_records_its_wait() {
    let (log, _spans) = spans();
    let (sim, layer) = setup(scarce());
    call(&sim, &layer, |_| {}).await.expect("data");
    let start = Instant::now();
    call(&sim, &layer, |_| {}).await.expect("data");
    let took = start.elapsed().as_secs_f64();
    let attempts = attempts(&log);
    let [first, second] = &*attempts else {
        panic!("two attempts: {attempts:?}");
    };
    // The first call waits for the token, which the simulated endpoint returns at once.
    let for_token = wait("readiness", "0.0");
    assert!(first.contains(&for_token), "{first}");
    let waited = wait("rate", &format!("{took:?}"));
    assert!(
        took >= 2.0 && second.contains(&waited),
        "{waited}: {second}"
    );
}

#[tokio::test(start_paused = true)]
async fn attempt_span_records_a_wait_for_a_token() {
    let (log, _spans) = spans();
    let (sim, layer) = setup(Limits::default());
    let mut slow = Faults::default();
    let late = TokenFault::Slow(Duration::from_secs(3));
    slow.token.push(Scripted::new(late, When::Always));
    sim.set_faults(slow);
    // Too late for the first call, which ends, and late for the second. The third call needs no
    // wait. The last is refused.
    let deadline = DeadlineAt::new((Instant::now() + Duration::from_secs(1)).into_std());
    let late = call(&sim, &layer, |request| {
        request.extensions_mut().insert(deadline);
    });
    late.await.expect_err("there is no token");
    call(&sim, &layer, |_| {}).await.expect("data");
    call(&sim, &layer, |_| {}).await.expect("data");
    tokio::time::sleep(Duration::from_secs(60)).await;
    sim.revoke_all();
    call(&sim, &layer, |_| {}).await.expect("data");
    let attempts = attempts(&log);
    let waits = ["1.0", "2.0", "", "", ""];
    assert_eq!(attempts.len(), waits.len(), "{attempts:?}");
    for (attempt, seconds) in attempts.iter().zip(waits) {
        let waited = wait("readiness", seconds);
        assert_eq!(
            attempt.contains(&waited),
            !seconds.is_empty(),
            "{waited}: {attempt}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn attempt_span_records_an_abandoned_wait() {
    let (log, _spans) = spans();
    let quota = Quota::new(NonZeroU32::MIN, Duration::from_secs(20));
    let (sim, layer) = setup(Limits::new(quota.expect("an interval")));
    call(&sim, &layer, |_| {}).await.expect("data");
    // One call ends by its deadline, and one by its caller. Nothing is known of the service by
    // then, so neither is rejected on arrival.
    tokio::time::sleep(Duration::from_secs(11)).await;
    let deadline = DeadlineAt::new((Instant::now() + Duration::from_secs(1)).into_std());
    let late = call(&sim, &layer, |request| {
        request.extensions_mut().insert(deadline);
    });
    late.await.expect_err("there is no permit");
    let hurried = timeout(Duration::from_millis(500), call(&sim, &layer, |_| {}));
    hurried.await.expect_err("there is no permit");
    let calls = calls(&log);
    assert_eq!(calls.len(), 3, "{calls:?}");
    assert!(calls[1].contains("error.type=\"timeout\""), "{calls:?}");
    assert!(calls[2].contains("error.type=\"cancelled\""), "{calls:?}");
    let attempts = attempts(&log);
    assert_eq!(attempts.len(), 3, "{attempts:?}");
    assert!(attempts[1].contains(&wait("rate", "1.0")), "{attempts:?}");
    assert!(attempts[2].contains(&wait("rate", "0.5")), "{attempts:?}");
}

#[tokio::test(start_paused = true)]
async fn waits_are_a_histogram_by_cause() {
    let recorder = PrometheusBuilder::new()
        .set_buckets(&[1.0, 5.0])
        .expect("there are some")
        .build_recorder();
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let (sim, layer) = setup(scarce());
    for _ in 0..3 {
        call(&sim, &layer, |_| {}).await.expect("data");
    }
    let text = recorder.handle().render();
    for line in [
        r#"tds_wait_seconds_bucket{cause="rate",le="1"} 0"#,
        r#"tds_wait_seconds_bucket{cause="rate",le="5"} 2"#,
        r#"tds_wait_seconds_count{cause="rate"} 2"#,
    ] {
        assert!(text.lines().any(|each| each == line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn client_names_distinguish_metrics_on_one_recorder() {
    let (log, _spans) = spans();
    let recorder = PrometheusBuilder::new().build_recorder();
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let server = sim::start(Config::default()).await;
    for (name, calls) in [("day", 2), ("night", 1)] {
        let client = sim::builder(&server).name(name).build();
        let client = client.expect("loopback is let through");
        for _ in 0..calls {
            let called = client.get("/v1/live/bus").await.expect("data");
            called.bytes().await.expect("a whole body");
        }
        client.status().record();
    }
    let text = recorder.handle().render();
    for line in [
        r#"tds_calls_total{kind="success",client="day"} 2"#,
        r#"tds_calls_total{kind="success",client="night"} 1"#,
        r#"tds_attempts_total{kind="success",client="night"} 1"#,
        // Including the token request.
        r#"tds_granted_total{client="day"} 3"#,
        r#"tds_granted_total{client="night"} 2"#,
        r#"tds_permits_quota{client="day"} 50"#,
    ] {
        assert!(text.lines().any(|each| each == line), "{line}\n{text}");
    }
    let named = calls(&log);
    let named = named
        .iter()
        .filter(|call| call.contains("tds.client=\"day\""));
    assert_eq!(named.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn spans_use_opentelemetry_names_and_omit_the_query() {
    let (log, _spans) = spans();
    let (sim, layer) = setup(Limits::default());
    let mut faults = Faults::default();
    faults.data.push("503@every:2".parse().expect("a fault"));
    sim.set_faults(faults);
    call(&sim, &layer, |_| {}).await.expect("data");
    let with_query = |request: &mut Request<_>| {
        let target = format!("{URL}/v1/live/bus?key=CANARY");
        *request.uri_mut() = target.parse().expect("an address");
    };
    call(&sim, &layer, with_query).await.expect("data");
    let text = log.text();
    assert!(!text.contains("CANARY"), "{text}");
    let ends = text.lines().filter(|line| line.contains("close"));
    let [_, _, first, second, whole] = *ends.collect::<Vec<_>>() else {
        panic!("two attempts and their calls: {text}");
    };
    let asked = "http.request.method=GET server.address=\"127.0.0.1\" server.port=1 url.path=\"/v1/live/bus\"";
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
}

#[tokio::test(start_paused = true)]
async fn quiet_day_logs_at_most_five_lines() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::INFO)
        .with_writer(move || writer.clone())
        .finish();
    let _ours = listen(subscriber);
    let (sim, layer) = setup(Limits::default());
    for _minute in 0..24 * 60 {
        call(&sim, &layer, |_| {}).await.expect("data");
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    let text = log.text();
    assert!(text.contains("token renewed"), "{text}");
    assert!(text.lines().count() <= 5, "{text}");
}

/// The table of the documentation: a metric's name and its kind.
fn metrics_of_the_table() -> BTreeMap<String, String> {
    let rows = include_str!("../../src/client/status.rs").lines();
    let rows = rows.filter_map(|line| line.trim().strip_prefix("/// | `tds_"));
    rows.flat_map(|row| {
        let (names, rest) = row.split_once(" | ").expect("a row");
        let kind = rest.split(" | ").next().expect("a kind").to_owned();
        let names = names.replace('`', "");
        let names = names
            .split(", ")
            .map(|name| name.trim_start_matches("tds_").to_owned());
        names
            .map(move |name| (format!("tds_{name}"), kind.clone()))
            .collect::<Vec<_>>()
    })
    .collect()
}

#[tokio::test]
async fn metrics_match_their_table_without_paths_in_labels() {
    let recorder = PrometheusBuilder::new()
        .set_buckets(&[1.0])
        .expect("one")
        .build_recorder();
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let server = sim::start(Config::default()).await;
    let client = sim::builder(&server).name("day").build();
    let client = client.expect("loopback is let through");
    let mut calls = JoinSet::new();
    for n in 0..60 {
        let call = client.get(format!("/v1/live/bus?{n}"));
        calls.spawn(async move { call.await?.bytes().await });
    }
    for body in calls.join_all().await {
        body.expect("a whole body");
    }
    client
        .get("/no/such/thing")
        .await
        .map(drop)
        .expect_err("nothing");
    client.status().record();
    let text = recorder.handle().render();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let types = types.filter_map(|line| line.split_once(' '));
    let shown: BTreeMap<_, _> = types
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    assert_eq!(shown, metrics_of_the_table());
    let labels = text
        .lines()
        .filter_map(|line| Some(line.split_once('{')?.1.rsplit_once('}')?.0));
    for label in labels.flat_map(|labels| labels.split(',')) {
        let (key, value) = label.split_once('=').expect(label);
        assert!(["kind", "cause", "client", "le"].contains(&key), "{label}");
        assert!(
            !value.contains('/') && !value.contains("127.0.0.1"),
            "{label}"
        );
    }
}
