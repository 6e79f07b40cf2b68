//! Refusals for the address: silence, and a stricter rung.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONNECTION};
use http_body_util::Empty;
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, ServiceExt, service_fn};
use tower_tds_limits::{Burst, Limiter, Limits, RequestLimitLayer, Rules, Rung};

use super::{
    limited::Limited,
    ms, secs,
    service::{Answer, Scripted},
};

#[tokio::test(start_paused = true)]
async fn one_423_silences_all_calls_and_keeps_the_rung() {
    let limited = Limited::before(Scripted::refusing(ms(20), 1, Answer::status(423)));
    assert_eq!(limited.limiter.snapshot().rung, Rung::Proven);
    limited.calls(1).await;
    let refused = Instant::now();
    let snapshot = limited.limiter.snapshot();
    assert_eq!(snapshot.rung, Rung::Proven);
    assert_eq!(snapshot.silent_for, Some(ms(1_002)));
    limited.clone().calls(5).await;
    let after = limited.service.arrivals()[1] - refused;
    assert!(after >= secs(1), "{after:?}");
}

/// Eight refusals that were in flight together are one event: one change to one request at a time, and one second of
/// silence, not eight.
#[tokio::test(start_paused = true)]
async fn several_423_in_flight_are_one_refusal() {
    let limited = Limited::before(Scripted::refusing(ms(500), 8, Answer::status(423)));
    limited.calls(8).await;
    let refused = Instant::now();
    assert_eq!(limited.limiter.snapshot().rung, Rung::Serial);
    limited.calls(3).await;
    let arrivals = limited.service.arrivals();
    let after = arrivals[8] - refused;
    assert!(after >= secs(1) && after < ms(1_600), "{after:?}");
    // Each request waits for the answer to the one before.
    let apart = arrivals[8..]
        .windows(2)
        .all(|two| two[1] - two[0] >= ms(500));
    assert!(apart, "{arrivals:?}");
}

/// Reproducer for L4: a locked resource is refused whatever else is sent.
#[tokio::test(start_paused = true)]
async fn repeated_423_of_lone_calls_keep_the_rung() {
    let limited = Limited::before(Scripted::new(ms(20), |n| {
        if n % 10 == 0 && n < 1_000 {
            Answer::status(423)
        } else {
            Answer::ok()
        }
    }));
    for _ in 0..1_000 {
        limited.calls(1).await;
        advance(ms(1_100)).await;
    }
    assert_eq!(limited.limiter.snapshot().rung, Rung::Proven);
    let begin = Instant::now();
    limited.calls(60).await;
    assert!(begin.elapsed() < secs(2), "{:?}", begin.elapsed());
}

/// A gateway that takes no burst: it accepts requests 20 ms apart and answers the others with 423.
/// It keeps its time in whole milliseconds.
fn burstless() -> Scripted {
    let mut next = None;
    Scripted::new(ms(30), move |_| {
        let now = Instant::now();
        match next {
            Some(next) if now < next => Answer::status(423),
            _ => {
                next = Some(now + ms(20));
                Answer::ok()
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn burstless_gateway_refuses_at_most_thirteen_calls() {
    let limited = Limited::before(burstless());
    let refused = |statuses: &[StatusCode]| statuses.iter().filter(|s| **s != 200).count();
    let first = limited.calls(60).await;
    assert!((1..=13).contains(&refused(&first)), "{}", refused(&first));
    assert_eq!(limited.limiter.snapshot().rung, Rung::Serial);
    let then = limited.calls(400).await;
    assert_eq!(refused(&then), 0);
    assert_eq!(limited.limiter.snapshot().rung, Rung::Serial);
}

#[tokio::test(start_paused = true)]
async fn burstless_gateway_refuses_nothing_with_burst_zero() {
    let rules = Rules::window().bucket(Burst::Of(0));
    let limited = Limited::new(Limits::default().rules(rules), burstless());
    let statuses = limited.calls(100).await;
    assert!(statuses.iter().all(|status| *status == 200));
}

#[tokio::test(start_paused = true)]
async fn requests_close_their_sockets_until_three_seconds_after_a_416() {
    let service = service_fn(async |request: Request<Empty<Bytes>>| {
        let mut response = Response::new(Empty::<Bytes>::new());
        let closes = request
            .headers()
            .get(CONNECTION)
            .is_some_and(|value| value == "close");
        response.extensions_mut().insert(closes);
        if request.uri() == "/refused" {
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
        }
        Ok::<_, Infallible>(response)
    });
    let limited = RequestLimitLayer::new(Limiter::new(Limits::default())).layer(service);
    let closes = async |path: &'static str| {
        let request = Request::get(path).body(Empty::new()).expect("a request");
        let response = limited.clone().oneshot(request).await.expect("a response");
        response.extensions().get::<bool>().copied()
    };
    assert_eq!(closes("/refused").await, Some(false));
    assert_eq!(closes("/").await, Some(true), "after the silence");
    sleep(ms(2_000)).await;
    assert_eq!(closes("/").await, Some(false));
}

#[tokio::test(start_paused = true)]
async fn the_certificate_is_reached_and_never_exceeded() {
    let limited = Limited::before(Scripted::new(ms(150), |_| Answer::ok()));
    assert_eq!(limited.limiter.snapshot().certificate, 0);
    limited.calls(500).await;
    let certificate = limited.limiter.snapshot().certificate;
    assert!((45..=50).contains(&certificate), "{certificate}");
}
