//! What spans and metrics say of a call, over the simulator in this process and under paused time.
#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

#[path = "support/log.rs"]
mod log;

use std::{num::NonZeroU32, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use log::Log;
use metrics_exporter_prometheus::PrometheusBuilder;
use tds_sim::{Config, Server, Sim};
use tokio::time::{Instant, timeout};
use tower::{ServiceBuilder, ServiceExt};
use tower_tds::{
    Client, Credentials, Deadline, Error, Limiter, Limits, Quota, TdsLayer,
    layers::token::{Origin, TokenEndpoint, TokenSource},
};
use tracing::{Dispatch, Level, subscriber::DefaultGuard};
use tracing_subscriber::fmt::format::FmtSpan;

const URL: &str = "http://127.0.0.1:1";

/// The simulator, and the whole layer for it within these limits.
fn setup(limits: Limits) -> (Sim, TdsLayer) {
    let sim = Sim::new(Config::default());
    let credentials = Credentials::new(sim.client_id(), sim.client_secret());
    let endpoint = TokenEndpoint::keycloak_loopback(URL, "ServiceConnect");
    let tokens = TokenSource::builder(endpoint.expect("loopback"), credentials.expect("usable"));
    let tokens = tokens.build::<_, Full<Bytes>, _>(sim.clone());
    let origin = Origin::loopback(&http::Uri::from_static(URL)).expect("loopback");
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
    response.into_body().collect().await.map(drop)
}

/// A permit in each two seconds.
fn scarce() -> Limits {
    let quota = Quota::new(NonZeroU32::MIN, Duration::from_secs(2));
    Limits::new(quota.expect("two seconds are an interval"))
}

/// Notes each span at its end, with its fields.
fn spans() -> (Log, (Dispatch, DefaultGuard)) {
    // With one alone, a span that another thread meets first is told to nobody, for good.
    let other = Dispatch::new(tracing_subscriber::registry());
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::INFO)
        .with_ansi(false)
        .without_time()
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .finish();
    let ours = tracing::subscriber::set_default(subscriber);
    // What another thread met before there were two.
    tracing::callsite::rebuild_interest_cache();
    (log, (other, ours))
}

/// The calls' spans, in the order of their ends.
fn calls(log: &Log) -> Vec<String> {
    let text = log.text();
    let ends = text.lines().filter(|line| line.contains("close"));
    let calls = ends.filter(|line| line.contains("tds.call{") && !line.contains("tds.attempt{"));
    calls.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_call_says_what_it_waited_for_and_for_how_long() {
    let (log, _spans) = spans();
    let (sim, layer) = setup(scarce());
    call(&sim, &layer, |_| {}).await.expect("data");
    let start = Instant::now();
    call(&sim, &layer, |_| {}).await.expect("data");
    let took = start.elapsed().as_secs_f64();
    let calls = calls(&log);
    let [first, second] = &*calls else {
        panic!("two calls: {calls:?}");
    };
    assert!(!first.contains("tds.waited"), "{first}");
    let waited = format!(" tds.waited.window={took:?}}}");
    assert!(
        took >= 2.0 && second.contains(&waited),
        "{waited}: {second}"
    );
    assert_eq!(second.matches("tds.waited").count(), 1, "{second}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_given_up_is_in_the_span_too() {
    let (log, _spans) = spans();
    let (sim, layer) = setup(scarce());
    call(&sim, &layer, |_| {}).await.expect("data");
    // By its deadline, and by its caller.
    let deadline = Deadline::after(Duration::from_secs(1));
    let late = call(&sim, &layer, |request| {
        request.extensions_mut().insert(deadline);
    });
    late.await.expect_err("there is no permit");
    let hurried = timeout(Duration::from_millis(500), call(&sim, &layer, |_| {}));
    hurried.await.expect_err("there is no permit");
    let calls = calls(&log);
    assert_eq!(calls.len(), 3, "{calls:?}");
    assert!(calls[1].contains("error.type=\"timeout\""), "{calls:?}");
    assert!(calls[1].contains("tds.waited.window=1"), "{calls:?}");
    assert!(calls[2].contains("error.type=\"cancelled\""), "{calls:?}");
    assert!(calls[2].contains("tds.waited.window=0.5"), "{calls:?}");
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
        r#"tds_wait_seconds_bucket{cause="window",le="1"} 0"#,
        r#"tds_wait_seconds_bucket{cause="window",le="5"} 2"#,
        r#"tds_wait_seconds_count{cause="window"} 2"#,
    ] {
        assert!(text.lines().any(|each| each == line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn two_clients_on_one_recorder_are_told_apart_by_their_names() {
    let (log, _spans) = spans();
    let recorder = PrometheusBuilder::new().build_recorder();
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let server = Server::start(Config::default()).await.expect("a free port");
    for (name, calls) in [("day", 2), ("night", 1)] {
        let credentials = Credentials::new(server.client_id(), server.client_secret());
        let credentials = credentials.expect("usable");
        let client = Client::builder(server.auth_url(), server.base_url(), credentials)
            .loopback_http()
            .name(name)
            .build()
            .expect("loopback is let through");
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
        // With the token's.
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
