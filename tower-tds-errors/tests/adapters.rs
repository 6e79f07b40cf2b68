//! The judgement and the decision inside of other crates' layers.
#![cfg(all(feature = "tower-http", feature = "tower-retry"))]
#![expect(clippy::unwrap_used, reason = "a test that panics fails")]

#[path = "support/probe.rs"]
mod probe;

use std::io;
use std::num::NonZeroU32;
use std::task::Poll;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use probe::{Probe, get, status_of};
use tower::buffer::BufferLayer;
use tower::retry::RetryLayer;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};
use tower_http::classify::{ClassifiedResponse, ClassifyResponse, MakeClassifier};
use tower_tds_errors::{
    Budget, ClassifyLayer, Error, GiveUp, Kind, KindClassifier, Repeat, RetryLayer as Ours,
    RetryPolicy, Sent,
};

/// The error that a service with this status ends in, and when it was asked.
async fn tried(status: u16, policy: RetryPolicy, method: Method) -> (Error, Vec<Duration>) {
    let probe = Probe::always(status);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(policy))
        .layer(ClassifyLayer::new());
    let mut request = get("/v2");
    *request.method_mut() = method;
    let error = stack.service(probe.clone()).oneshot(request).await;
    let seen = probe.seen().iter().map(|seen| seen.at).collect();
    (error.unwrap_err(), seen)
}

#[tokio::test(start_paused = true)]
async fn the_policy_tries_again_what_can_help_and_says_why_it_stops() {
    let one = Ours::new().attempts(NonZeroU32::MIN).policy();
    for (status, policy, method, attempts, stop) in [
        (503, Ours::new().policy(), Method::GET, 3, GiveUp::Attempts),
        (423, Ours::new().policy(), Method::GET, 3, GiveUp::Attempts),
        (404, Ours::new().policy(), Method::GET, 1, GiveUp::Fatal),
        (503, one, Method::GET, 1, GiveUp::Attempts),
        (
            503,
            Ours::new().policy(),
            Method::POST,
            1,
            GiveUp::NotIdempotent,
        ),
        (421, Ours::new().policy(), Method::GET, 2, GiveUp::Fatal),
    ] {
        let (error, seen) = tried(status, policy, method).await;
        assert_eq!(
            (error.attempts(), seen.len()),
            (attempts, seen.len()),
            "{status}"
        );
        assert_eq!(error.gave_up(), Some(stop), "{status}");
        assert_eq!(u32::try_from(seen.len()).unwrap(), attempts, "{status}");
        let silent = seen
            .windows(2)
            .all(|pair| pair[1] >= pair[0] + Duration::from_secs(1));
        assert!(silent || status != 423);
    }
}

#[tokio::test(start_paused = true)]
async fn the_policy_says_what_an_attempt_before_may_have_done() {
    let probe = Probe::new(|n| {
        let refused = io::ErrorKind::ConnectionRefused;
        let fails = if n == 0 {
            io::ErrorKind::ConnectionReset
        } else {
            refused
        };
        Err(io::Error::from(fails).into())
    });
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(Ours::new().policy()))
        .layer(ClassifyLayer::new());
    let error = stack.service(probe).oneshot(get("/v2")).await.unwrap_err();
    assert_eq!((error.kind(), error.sent()), (Kind::Connect, Sent::Unknown));
}

#[tokio::test(start_paused = true)]
async fn the_policy_retries_a_post_by_consent_of_its_caller() {
    let probe = Probe::always(503);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(Ours::new().policy()))
        .layer(ClassifyLayer::new());
    let mut request = get("/v2");
    *request.method_mut() = Method::POST;
    request.extensions_mut().insert(Repeat::Allowed);
    let call = stack.service(probe.clone()).oneshot(request);
    let error = call.await.unwrap_err();
    assert_eq!(error.gave_up(), Some(GiveUp::Attempts));
    assert_eq!(probe.seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn three_times_three_nested_with_towers_own_retry_send_three() {
    let probe = Probe::always(503);
    let ours = tower_tds_errors::RetryLayer::new;
    let outside = ServiceBuilder::new()
        .layer(RetryLayer::new(Ours::new().policy()))
        .layer(ours())
        .layer(ClassifyLayer::new());
    let error = outside.service(probe.clone()).oneshot(get("/v2")).await;
    let error = error.unwrap_err();
    assert_eq!(error.gave_up(), Some(GiveUp::Attempts));
    assert_eq!((probe.seen().len(), error.attempts()), (3, 3));
    let probe = Probe::always(503);
    let inside = ServiceBuilder::new()
        .layer(ours())
        .layer(RetryLayer::new(Ours::new().policy()))
        .layer(ClassifyLayer::new());
    let error = inside.service(probe.clone()).oneshot(get("/v2")).await;
    let error = error.unwrap_err();
    assert_eq!(error.gave_up(), Some(GiveUp::Attempts));
    assert_eq!((probe.seen().len(), error.attempts()), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn the_policy_neither_cuts_short_nor_sleeps_through_a_long_wait() {
    let probe = Probe::new(|_| {
        let mut response = status_of(503);
        let wait = "31".parse().unwrap();
        response.headers_mut().insert("retry-after", wait);
        Ok(response)
    });
    let stack = |policy| {
        ServiceBuilder::new()
            .layer(RetryLayer::new(policy))
            .layer(ClassifyLayer::new())
            .service(probe.clone())
    };
    let error = stack(Ours::new().policy())
        .oneshot(get("/"))
        .await
        .unwrap_err();
    assert_eq!(error.gave_up(), Some(GiveUp::HintTooLong));
    let patient = Ours::new().longest_wait(Duration::from_secs(60)).policy();
    stack(patient).oneshot(get("/")).await.unwrap_err();
    let seen: Vec<_> = probe.seen().iter().map(|seen| seen.at).collect();
    assert_eq!(seen.len(), 4);
    assert!(seen[2] >= seen[1] + Duration::from_secs(31));
}

#[tokio::test(start_paused = true)]
async fn the_policy_keeps_to_a_budget_that_its_clones_share() {
    let n = |n| NonZeroU32::new(n).unwrap();
    let probe = Probe::always(503);
    let budget = Budget::new(60, n(100)).per_second(0);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(Ours::new().budget(budget).policy()))
        .layer(ClassifyLayer::new())
        .service(probe.clone());
    for _ in 0..1000 {
        let error = stack.clone().oneshot(get("http://a/")).await.unwrap_err();
        let stop = error.gave_up();
        assert!(matches!(stop, Some(GiveUp::Budget | GiveUp::Attempts)));
    }
    // Ten at once, and a share of each request after the first.
    let sent = probe.seen().len();
    assert!((1608..=1610).contains(&sent), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn what_a_dropped_wait_of_the_policy_was_to_cost_comes_back() {
    let n = |n| NonZeroU32::new(n).unwrap();
    let one = || Budget::new(0, n(1)).per_second(0).burst(n(1));
    let probe = Probe::always(503);
    let policy = Ours::new().budget(one()).policy();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(policy))
        .layer(ClassifyLayer::new())
        .service(probe.clone());
    for polls in 0..20 {
        let mut call = tokio_test::task::spawn(stack.clone().oneshot(get("/")));
        for _ in 0..polls {
            tokio_test::assert_pending!(call.poll());
        }
    }
    let error = stack.oneshot(get("/")).await.unwrap_err();
    assert_eq!(
        (error.attempts(), error.gave_up()),
        (2, Some(GiveUp::Budget))
    );

    // What met a closed connection is paid back where that was all.
    let reset = || BoxError::from(io::Error::from(io::ErrorKind::ConnectionReset));
    let probe = Probe::new(move |n| {
        if n % 2 == 0 {
            Err(reset())
        } else {
            Ok(status_of(200))
        }
    });
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(Ours::new().budget(one()).policy()))
        .layer(ClassifyLayer::new())
        .service(probe);
    for _ in 0..20 {
        stack.clone().oneshot(get("/")).await.unwrap();
    }
    // And what met a failure is not.
    let probe = Probe::new(|n| Ok(status_of(if n == 1 { 200 } else { 503 })));
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(Ours::new().budget(one()).policy()))
        .layer(ClassifyLayer::new())
        .service(probe);
    stack.clone().oneshot(get("/")).await.unwrap();
    let error = stack.oneshot(get("/")).await.unwrap_err();
    assert_eq!(
        (error.attempts(), error.gave_up()),
        (1, Some(GiveUp::Budget))
    );
}

#[tokio::test(start_paused = true)]
async fn the_policy_pays_for_nothing_that_was_not_sent_and_meets_idle_connections_by_gets_alone() {
    let n = |n| NonZeroU32::new(n).unwrap();
    let one = || Budget::new(0, n(1)).per_second(0).burst(n(1));
    for (method, kind, policy, attempts) in [
        (
            Method::GET,
            io::ErrorKind::ConnectionRefused,
            Ours::new().budget(one()).policy(),
            3,
        ),
        (
            Method::PUT,
            io::ErrorKind::ConnectionReset,
            Ours::new().policy(),
            3,
        ),
        (
            Method::GET,
            io::ErrorKind::ConnectionReset,
            Ours::new().policy(),
            4,
        ),
    ] {
        let probe = Probe::new(move |_| Err(io::Error::from(kind).into()));
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::new(policy))
            .layer(ClassifyLayer::new())
            .service(probe);
        let mut request = get("/");
        *request.method_mut() = method;
        let error = stack.oneshot(request).await.unwrap_err();
        assert_eq!(error.gave_up(), Some(GiveUp::Attempts));
        assert_eq!(error.attempts(), attempts, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_policy_works_over_buffer_and_honours_a_veto() {
    let probe = Probe::new(|n| Ok(status_of(if n < 2 { 503 } else { 200 })));
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(Ours::new().policy()))
        .layer(BufferLayer::new(4))
        .layer(ClassifyLayer::new())
        .service(probe.clone());
    stack.oneshot(get("/v2")).await.unwrap();
    let attempts: Vec<_> = probe
        .seen()
        .iter()
        .map(|seen| seen.line.contains("/v2"))
        .collect();
    assert_eq!(attempts, [true; 3]);
    let probe = Probe::always(503);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(Ours::new().policy()))
        .layer(ClassifyLayer::new().hook(|error, _| error.forbid_retry()));
    let error = stack
        .service(probe.clone())
        .oneshot(get("/"))
        .await
        .unwrap_err();
    assert_eq!(error.gave_up(), Some(GiveUp::Forbidden));
    assert_eq!(probe.seen().first().map(|seen| seen.attempt), Some(1));
    assert_eq!(probe.seen().len(), 1);
}

#[test]
fn outside_a_runtime_the_policy_ends_by_what_it_cannot_wait_for() {
    for (status, attempts, gave_up) in [(503, 1, GiveUp::NotReady), (421, 2, GiveUp::Fatal)] {
        let answers = tower::service_fn(move |_: Request<()>| {
            std::future::ready(Ok::<_, BoxError>(status_of(status)))
        });
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::new(Ours::new().policy()))
            .layer(ClassifyLayer::new())
            .service(answers);
        let mut call = tokio_test::task::spawn(stack.oneshot(Request::new(())));
        let Poll::Ready(Err(error)) = call.poll() else {
            unreachable!("nothing is waited for");
        };
        assert_eq!(
            (error.attempts(), error.gave_up()),
            (attempts, Some(gave_up)),
            "{error}"
        );
    }
}

#[test]
fn the_classifier_says_the_kind_of_heads_and_of_errors() {
    let mut request = Request::new(());
    request
        .headers_mut()
        .insert("range", "bytes=5-".parse().unwrap());
    let classifier = KindClassifier::default().make_classifier(&request);
    for (status, expected) in [
        (200, None),
        (304, None),
        (416, Some(Kind::RangeUnclear)),
        (503, Some(Kind::Unavailable)),
    ] {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        let ClassifiedResponse::Ready(said) = classifier.classify_response(&response) else {
            unreachable!("no body is waited for");
        };
        assert_eq!(said.err(), expected, "{status}");
    }
    let error = Error::new(Kind::LimitTimeout, "no");
    assert_eq!(classifier.classify_error(&error), Kind::LimitTimeout);
    let boxed = BoxError::from(error);
    assert_eq!(classifier.classify_error(&boxed), Kind::LimitTimeout);
    let reset = BoxError::from(io::Error::from(io::ErrorKind::ConnectionReset));
    assert_eq!(classifier.classify_error(&reset), Kind::Reset);
    assert_eq!(classifier.classify_error(&"reset"), Kind::Unrecognized);
}

#[tokio::test(start_paused = true)]
async fn the_classifier_fits_the_trace_layer() {
    let traced = tower_http::trace::TraceLayer::new(KindClassifier::default());
    let stack = ServiceBuilder::new()
        .layer(traced)
        .layer(ClassifyLayer::new())
        .service(Probe::always(429));
    let error = stack.oneshot(get("/")).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), Kind::Throttled);
}

/// tower asks the service's own policy for the first copy, and that one stays.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_used_again_judges_each_request_by_its_own_method() {
    let probe = Probe::always(503);
    let mut service = ServiceBuilder::new()
        .layer(RetryLayer::new(Ours::new().policy()))
        .layer(ClassifyLayer::new())
        .service(probe.clone());
    for (method, times) in [(Method::GET, 3), (Method::POST, 4), (Method::GET, 7)] {
        let mut request = get("/v2");
        *request.method_mut() = method;
        let ready = service.ready().await.unwrap();
        drop(ready.call(request).await);
        assert_eq!(probe.seen().len(), times);
    }
}
