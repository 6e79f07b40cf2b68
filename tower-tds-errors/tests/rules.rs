//! The user's own rules, by the hook, over real calls of the layers.
#![expect(clippy::unwrap_used, reason = "a test that panics fails")]

#[path = "support/probe.rs"]
mod probe;

use std::io;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use probe::{Probe, get, status_of};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_tds_errors::{ClassifyLayer, Error, GiveUp, Kind, RetryLayer, Sent};

/// The error of three attempts at a service that says `status`, and how often it was asked.
async fn tried(status: u16, rules: ClassifyLayer) -> (Error, usize) {
    let probe = Probe::always(status);
    let stack = ServiceBuilder::new().layer(RetryLayer::new()).layer(rules);
    let error = stack.service(probe.clone()).oneshot(get("/v2")).await;
    (error.unwrap_err(), probe.seen().len())
}

#[tokio::test(start_paused = true)]
async fn a_rule_makes_a_fatal_answer_worth_a_retry_and_the_other_way_round() {
    let rules = ClassifyLayer::new().hook(|error, _| match error.status() {
        Some(StatusCode::NOT_FOUND) => error.set_kind(Kind::Unavailable),
        Some(StatusCode::SERVICE_UNAVAILABLE) => error.set_kind(Kind::Rejected),
        _ => {}
    });
    assert_eq!(tried(404, rules.clone()).await.1, 3);
    assert_eq!(tried(503, rules.clone()).await.1, 1);
    assert_eq!(tried(500, rules).await.1, 3, "no rule holds");
}

#[tokio::test(start_paused = true)]
async fn a_veto_is_not_undone_by_another_kind() {
    let rules = ClassifyLayer::new().hook(|error, _| {
        error.forbid_retry();
        error.set_kind(Kind::Throttled);
    });
    let (error, sent) = tried(503, rules).await;
    assert_eq!((sent, error.is_retryable()), (1, false));
    assert_eq!(error.kind(), Kind::Throttled);
    assert_eq!(error.gave_up(), Some(GiveUp::Forbidden));
    let line = error.to_string();
    assert!(line.ends_with("not retried as that is forbidden"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn a_veto_by_host_and_path_holds_for_the_first_retry_too() {
    let rules = ClassifyLayer::new().hook(|error, _| {
        let data = "https://api.example/v2/";
        if !error.uri().is_some_and(|uri| uri.starts_with(data)) {
            error.forbid_retry();
        }
    });
    for (uri, times) in [
        ("https://api.example/v2/rail", 3),
        ("https://api.example/v1/rail", 1),
        ("https://other.example/v2/rail", 1),
    ] {
        for fails in [Some(503), None] {
            let probe = Probe::new(move |_| match fails {
                Some(status) => Ok(status_of(status)),
                None => Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
            });
            let stack = ServiceBuilder::new().layer(RetryLayer::new());
            let stack = stack.layer(rules.clone()).service(probe.clone());
            stack.oneshot(get(uri)).await.unwrap_err();
            assert_eq!(probe.seen().len(), times, "{uri} {fails:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_calls_a_reset_a_failed_connect_sends_no_post_again() {
    for kind in [Kind::Connect, Kind::LimitTimeout, Kind::TokenUnavailable] {
        let rules = ClassifyLayer::new().hook(move |error, _| error.set_kind(kind));
        let probe = Probe::new(|_| Err(io::Error::from(io::ErrorKind::ConnectionReset).into()));
        let stack = ServiceBuilder::new().layer(RetryLayer::new()).layer(rules);
        let mut request = get("/");
        *request.method_mut() = Method::POST;
        let error = stack.service(probe.clone()).oneshot(request).await;
        let error = error.unwrap_err();
        assert_eq!((error.kind(), error.sent()), (kind, Sent::Unknown));
        assert_eq!(error.gave_up(), Some(GiveUp::NotIdempotent));
        assert_eq!((probe.seen().len(), probe.seen()[0].attempt), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_a_rule_puts_in_the_place_of_another_sends_no_post_again() {
    let rules = ClassifyLayer::new().hook(|error, _| *error = Error::new(Kind::Connect, "ours"));
    let probe = Probe::new(|_| Err(io::Error::from(io::ErrorKind::ConnectionReset).into()));
    let stack = ServiceBuilder::new().layer(RetryLayer::new()).layer(rules);
    let mut request = get("/");
    *request.method_mut() = Method::POST;
    let error = stack.service(probe.clone()).oneshot(request).await;
    assert_eq!(error.unwrap_err().sent(), Sent::Unknown);
    assert_eq!(probe.seen().len(), 1);
}

/// A layer between, that knows the host, say.
#[tokio::test(start_paused = true)]
async fn an_error_names_the_request_that_was_sent_and_not_the_one_that_was_asked_for() {
    let probe = Probe::always(404);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new())
        .map_request(|mut request: Request<_>| {
            *request.uri_mut() = "https://other.test/elsewhere".parse().unwrap();
            request
        })
        .layer(ClassifyLayer::new());
    let error = stack.service(probe).oneshot(get("/v2")).await.unwrap_err();
    assert!(
        error.to_string().contains("other.test/elsewhere"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_connect_that_a_rule_calls_rejected_blames_no_proxy() {
    let refused = Probe::new(|_| Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()));
    let rules = ClassifyLayer::new().hook(|error, _| error.set_kind(Kind::Rejected));
    let error = rules.layer(refused).oneshot(get("/")).await.unwrap_err();
    assert_eq!((error.kind(), error.sent()), (Kind::Rejected, Sent::Never));
    assert!(!error.to_string().contains("proxy"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_a_rule_gives_brings_its_wait() {
    let rules = ClassifyLayer::new().hook(|error, headers| {
        if headers.is_some_and(|headers| headers.contains_key("x-busy")) {
            error.set_kind(Kind::RateExceeded);
        }
    });
    let probe = Probe::new(|n| {
        let mut response = status_of(if n == 0 { 503 } else { 200 });
        let value = "per-second-rate".parse().unwrap();
        response.headers_mut().insert("x-busy", value);
        Ok(response)
    });
    let stack = ServiceBuilder::new().layer(RetryLayer::new()).layer(rules);
    let stack = stack.service(probe.clone());
    stack.oneshot(get("/v2")).await.unwrap();
    let seen = probe.seen();
    assert!(seen[1].at >= Duration::from_secs(1) && seen[1].line.contains("/v2"));
}

#[tokio::test(start_paused = true)]
async fn a_success_is_not_theirs_to_judge() {
    let rules = ClassifyLayer::new().hook(|error, _| error.forbid_retry());
    for status in [200, 204, 304] {
        let answered = rules.layer(Probe::always(status)).oneshot(get("/"));
        assert_eq!(answered.await.unwrap().status(), status);
    }
}
