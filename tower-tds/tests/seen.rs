//! Spans and metrics of a call, over the simulator in this process and under paused time.
#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

#[path = "support/log.rs"]
mod log;

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use log::Log;
use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry::{
    Context,
    trace::{
        SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider,
    },
};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tds_sim::{Config, Faults, Scripted, Server, Sim, TokenFault, When};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};
use tower::{ServiceBuilder, ServiceExt};
use tower_tds::{
    Client, Credentials, Deadline, Error, Limiter, Limits, Quota, TdsLayer,
    layers::token::{Origin, TokenEndpoint, TokenSource},
};
use tracing::{Dispatch, Instrument, Level, Span, subscriber::DefaultGuard};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{fmt::format::FmtSpan, layer::SubscriberExt};

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

/// A call to its body's end, made of a request that `with` has changed. Gives the headers that came to the simulator.
async fn call(
    sim: &Sim,
    layer: &TdsLayer,
    with: impl FnOnce(&mut Request<Full<Bytes>>),
) -> Result<Vec<HeaderMap>, Error> {
    let seen = Arc::<Mutex<Vec<HeaderMap>>>::default();
    let sees = Arc::clone(&seen);
    let service = ServiceBuilder::new()
        .layer(layer.clone())
        .map_future(Box::pin)
        .map_request(move |request: Request<_>| {
            let headers = request.headers().clone();
            sees.lock().expect("nobody panicked").push(headers);
            request
        })
        .service(sim.clone());
    let request = Request::get(format!("{URL}/v1/live/bus")).body(Full::default());
    let mut request = request.expect("a request");
    with(&mut request);
    let response = service.oneshot(request).await?;
    response.into_body().collect().await?;
    let seen = seen.lock().expect("nobody panicked").clone();
    Ok(seen)
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
async fn a_wait_for_a_token_is_in_the_span_of_its_call() {
    let (log, _spans) = spans();
    let (sim, layer) = setup(Limits::default());
    let mut slow = Faults::default();
    let late = TokenFault::Slow(Duration::from_secs(3));
    slow.token.push(Scripted::new(late, When::Always));
    sim.set_faults(slow);
    // Late for the first, which gives up, and for the second; the third needs none; the last is refused.
    let deadline = Deadline::after(Duration::from_secs(1));
    let late = call(&sim, &layer, |request| {
        request.extensions_mut().insert(deadline);
    });
    late.await.expect_err("there is no token");
    call(&sim, &layer, |_| {}).await.expect("data");
    call(&sim, &layer, |_| {}).await.expect("data");
    tokio::time::sleep(Duration::from_secs(60)).await;
    sim.revoke_all();
    call(&sim, &layer, |_| {}).await.expect("data");
    let waited = ["1.0", "2.0", "", "3.0"];
    let calls = calls(&log);
    assert_eq!(calls.len(), waited.len(), "{calls:?}");
    for (call, waited) in calls.iter().zip(waited) {
        let field = format!(" tds.waited.token={waited}}}");
        assert_eq!(call.contains(&field), !waited.is_empty(), "{field}: {call}");
        assert_eq!(call.contains("tds.waited"), !waited.is_empty(), "{call}");
    }
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

/// As a program has it that sends its traces somewhere.
fn traces() -> (Dispatch, DefaultGuard) {
    let tracer = SdkTracerProvider::builder().build().tracer("a program");
    let traces = tracing_opentelemetry::layer().with_tracer(tracer);
    let other = Dispatch::new(tracing_subscriber::registry());
    let ours = tracing_subscriber::registry().with(traces);
    let ours = tracing::subscriber::set_default(ours);
    tracing::callsite::rebuild_interest_cache();
    (other, ours)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let value = headers.get(name).map(HeaderValue::to_str);
    value.and_then(Result::ok).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn each_attempt_tells_the_server_its_own_span_of_the_callers_trace() {
    let _traces = traces();
    let (sim, layer) = setup(Limits::default());
    let mut faults = Faults::default();
    faults.data.push("503@every:2".parse().expect("a fault"));
    sim.set_faults(faults);
    call(&sim, &layer, |_| {}).await.expect("data");
    let job = tracing::info_span!("job");
    let context = job.context();
    let called = call(&sim, &layer, |_| {}).instrument(job).await;
    let seen = called.expect("the second attempt");
    let context = context.span().span_context().clone();
    let trace = format!("00-{}-", context.trace_id());
    let spans: Vec<_> = seen
        .iter()
        .map(|headers| {
            let span = text(headers, "traceparent").strip_prefix(&trace);
            let span = span.and_then(|rest| rest.strip_suffix("-01"));
            span.expect("a sampled span of that trace").to_owned()
        })
        .collect();
    let [first, second] = &*spans else {
        panic!("two attempts: {spans:?}");
    };
    assert_ne!(first, second);
    assert_ne!(*first, context.span_id().to_string());
    assert_eq!(first.len(), 16);
}

#[tokio::test(start_paused = true)]
async fn the_state_of_a_trace_that_came_in_is_passed_on() {
    let _traces = traces();
    let (sim, layer) = setup(Limits::default());
    let state = TraceState::from_key_value([("vendor", "a"), ("other", "b")]);
    let caller = SpanContext::new(
        TraceId::from(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736),
        SpanId::from(0x00f0_67aa_0ba9_02b7),
        TraceFlags::SAMPLED,
        true,
        state.expect("a state"),
    );
    let job = tracing::info_span!("job");
    let caller = Context::new().with_remote_span_context(caller);
    job.set_parent(caller).expect("its first parent");
    let seen = call(&sim, &layer, |request| {
        // Of another trace, whose parent went missing.
        let headers = request.headers_mut();
        headers.insert("tracestate", HeaderValue::from_static("stale=1"));
    });
    let seen = seen.instrument(job).await.expect("data");
    let parent = text(&seen[0], "traceparent");
    assert!(
        parent.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"),
        "{parent}"
    );
    assert!(!parent.contains("00f067aa0ba902b7"), "{parent}");
    let states: Vec<_> = seen[0].get_all("tracestate").into_iter().collect();
    assert_eq!(states, ["vendor=a,other=b"]);
}

#[tokio::test(start_paused = true)]
async fn a_traceparent_of_the_caller_goes_out_as_it_is() {
    let _traces = traces();
    let (sim, layer) = setup(Limits::default());
    let own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let seen = call(&sim, &layer, |request| {
        let headers = request.headers_mut();
        headers.insert("traceparent", HeaderValue::from_static(own));
        headers.insert("tracestate", HeaderValue::from_static("own=1"));
    });
    let seen = seen.await.expect("data");
    assert_eq!(text(&seen[0], "tracestate"), "own=1");
    let all: Vec<_> = seen[0].get_all("traceparent").into_iter().collect();
    assert_eq!(all, [own]);
}

#[tokio::test(start_paused = true)]
async fn without_traces_there_is_no_traceparent() {
    let (sim, layer) = setup(Limits::default());
    let seen = call(&sim, &layer, |_| {}).await.expect("data");
    // A log alone makes none, either.
    let (_log, _spans) = spans();
    let logged = call(&sim, &layer, |_| {}).await.expect("data");
    for headers in seen.iter().chain(&logged) {
        assert!(!headers.contains_key("traceparent"), "{headers:?}");
    }
    assert!(Span::current().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_call_and_its_attempts_have_the_names_of_opentelemetry_and_no_query() {
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
        // Inside of the call's.
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
async fn a_quiet_day_is_a_handful_of_lines() {
    let other = Dispatch::new(tracing_subscriber::registry());
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::INFO)
        .with_writer(move || writer.clone())
        .finish();
    let _ours = tracing::subscriber::set_default(subscriber);
    tracing::callsite::rebuild_interest_cache();
    let (sim, layer) = setup(Limits::default());
    for _minute in 0..24 * 60 {
        call(&sim, &layer, |_| {}).await.expect("data");
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    drop(other);
    let text = log.text();
    assert!(text.contains("token renewed"), "{text}");
    assert!(text.lines().count() <= 5, "{text}");
}

/// The table of the documentation: a metric's name and its kind.
fn metrics_of_the_table() -> BTreeMap<String, String> {
    let rows = include_str!("../src/metrics.rs").lines();
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
async fn the_metrics_are_those_of_the_table_and_no_label_is_of_a_caller() {
    let recorder = PrometheusBuilder::new()
        .set_buckets(&[1.0])
        .expect("one")
        .build_recorder();
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let server = Server::start(Config::default()).await.expect("a free port");
    let credentials = Credentials::new(server.client_id(), server.client_secret());
    let client = Client::builder(
        server.auth_url(),
        server.base_url(),
        credentials.expect("usable"),
    );
    let client = client
        .loopback_http()
        .name("day")
        .build()
        .expect("loopback is let through");
    let mut calls = JoinSet::new();
    for n in 0..60 {
        let call = client.get(&format!("/v1/live/bus?{n}"));
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
