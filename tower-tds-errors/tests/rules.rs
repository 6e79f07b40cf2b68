//! Rules of the user, over real calls of the layers.
#![expect(clippy::unwrap_used, reason = "a test that panics fails")]

#[path = "support/probe.rs"]
mod probe;

use std::io;
use std::time::Duration;

use http::{HeaderName, Method, StatusCode};
use probe::{Probe, get, status_of};
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt};
use tower_tds_errors::{ClassifyLayer, Error, Failure, Kind, RetryLayer, Rule, Stop};

/// The error of three attempts at a service that says `status`, and how often it was asked.
async fn tried(status: u16, rules: ClassifyLayer) -> (Error, usize) {
    let probe = Probe::always(status);
    let stack = ServiceBuilder::new().layer(RetryLayer::new()).layer(rules);
    let error = stack.service(probe.clone()).oneshot(get("/v2")).await;
    (error.unwrap_err(), probe.seen().len())
}

#[tokio::test(start_paused = true)]
async fn a_rule_makes_a_fatal_answer_worth_a_retry_and_the_other_way_round() {
    let status = |status| StatusCode::from_u16(status).unwrap();
    let rules = ClassifyLayer::new()
        .rule(Rule::means(Kind::Unavailable).status(status(404)))
        .rule(Rule::means(Kind::Rejected).status(status(503)));
    assert_eq!(tried(404, rules.clone()).await.1, 3);
    assert_eq!(tried(503, rules.clone()).await.1, 1);
    assert_eq!(tried(500, rules).await.1, 3, "no rule holds");
}

#[tokio::test(start_paused = true)]
async fn the_last_rule_that_holds_decides() {
    let rules = ClassifyLayer::new()
        .rule(Rule::means(Kind::Locked))
        .rule(Rule::means(Kind::Unavailable).when(|seen| seen.error().kind() == Kind::Locked))
        .rule(Rule::means(Kind::NotFound).status(StatusCode::GONE));
    assert_eq!(tried(418, rules).await.0.kind(), Kind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_veto_is_not_undone_by_later_rules() {
    let before = ClassifyLayer::new().rule(Rule::veto().message("BODY"));
    for rules in [
        before.clone(),
        before.clone().rule(Rule::means(Kind::Unavailable)),
        before.rule(Rule::veto()).rule(Rule::means(Kind::Throttled)),
    ] {
        let (error, sent) = tried(503, rules).await;
        assert_eq!((sent, error.is_retryable()), (1, false));
        assert_eq!(error.stopped_because(), Some(Stop::Vetoed));
        assert!(
            error
                .to_string()
                .ends_with("not retried as a rule or a layer below forbids it")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_veto_by_host_and_path_holds_for_the_first_retry_too() {
    let data = |seen: &Failure<'_>| {
        seen.uri().host() == Some("api.example") && seen.uri().path().starts_with("/v2/")
    };
    let rules = ClassifyLayer::new().rule(Rule::veto().when(move |seen| !data(seen)));
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
async fn a_rule_sees_the_request_and_which_attempt_it_is() {
    let rules = ClassifyLayer::new().rule(Rule::veto().when(|seen| {
        seen.attempt().number() == 2
            && seen.method() == Method::GET
            && seen.uri().query() == Some("key=1")
            && seen.asked().contains_key("x-flag")
            && seen.headers().is_some_and(http::HeaderMap::is_empty)
    }));
    let probe = Probe::always(503);
    let stack = ServiceBuilder::new().layer(RetryLayer::new()).layer(rules);
    let mut request = get("/v2?key=1");
    request.headers_mut().insert("x-flag", "1".parse().unwrap());
    let error = stack.service(probe.clone()).oneshot(request).await;
    let error = error.unwrap_err();
    assert_eq!(error.stopped_because(), Some(Stop::Vetoed));
    assert_eq!(
        (error.attempts(), error.history()),
        (2, &[Kind::Unavailable][..])
    );
    assert!(error.elapsed().is_some());
    let attempts: Vec<_> = probe.seen().iter().map(|seen| seen.attempt).collect();
    assert_eq!(attempts, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_rule_judges_transport_errors_by_their_types() {
    let reset = |_| {
        Err(BoxError::from(io::Error::from(
            io::ErrorKind::ConnectionReset,
        )))
    };
    let is_reset = |error: &Error| {
        let source = std::error::Error::source(error);
        source.is_some_and(|source| source.is::<io::Error>())
    };
    let rules = ClassifyLayer::new()
        .rule(Rule::veto().when(move |seen| seen.headers().is_none() && is_reset(seen.error())));
    let probe = Probe::new(reset);
    let error = rules.layer(probe).oneshot(get("/")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (Kind::Reset, false));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_a_rule_gives_brings_its_wait() {
    let header = HeaderName::from_static("x-busy");
    let rules = ClassifyLayer::new().rule(Rule::means(Kind::RateExceeded).header(header, "rate"));
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
    let rules = ClassifyLayer::new()
        .rule(Rule::means(Kind::Rejected))
        .rule(Rule::veto());
    for status in [200, 204, 304] {
        let answered = rules.layer(Probe::always(status)).oneshot(get("/"));
        assert_eq!(answered.await.unwrap().status(), status);
    }
}
